"""CONTRIBUTING's steps for a sharing method and an output layer, made in a copy of the tree, which the laws hold."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

METHOD = """
register_sharing_method(
    SharingMethod(
        name="quarter-norm",
        summary="scores divided by the fourth root of the squared norm",
        source="no paper",
        scale=lambda n: n.pow(-0.25),
    )
)
"""
EQUATION = ('    "cosine": lambda', '    "quarter-norm": lambda inner, norm: inner / norm**0.5,\n    "cosine": lambda')
HEAD = '''"""The softmax of the scores of half the features."""

from torch import Tensor

from .counted import CountedHead


class Halved(CountedHead):
    """The softmax of the scores of half the features."""

    flag = "--output-layer halved"

    def scores(self, features: Tensor) -> Tensor:
        """The table's scores of h / 2: (*, D) -> (*, V)."""
        return super().scores(features / 2)
'''
ENTRY = (
    "OURS = (\n",
    "@dataclass\nclass HalvedConfig:\n    halving: float = option(2.0, 'divisor')\n\n\n"
    "OURS = (\n    OutputHead('halved', 'half the features', lambda options, table, counts, words: "
    "Halved(table, counts, _specials(words)), HalvedConfig),\n",
)
IMPORT = ("from .registry import", "from .halved import Halved\nfrom .registry import")
TESTED = (
    '    "softmax": lambda counts: table(),\n',
    '    "softmax": lambda counts: table(),\n    "halved": lambda counts: Halved(table(), counts, MARKS),\n',
)
IMPORT_OF_TEST = (
    "from fairseq_tiedemb.outputs import (\n",
    "from fairseq_tiedemb.outputs.halved import Halved\nfrom fairseq_tiedemb.outputs import (\n",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the tree without what was made in it."""
    made = shutil.ignore_patterns("__pycache__", ".*_cache", ".git", ".venv", ".demo", "build", "runs", "*.egg-info")
    return Path(shutil.copytree(REPOSITORY, tmp_path / "copy", ignore=made))


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{old!r} in {file.name}"
    file.write_text(text.replace(old, new))


def run_tests(copy: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    finished = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode in (0, 1), finished.stdout + finished.stderr
    return finished.stdout


@pytest.mark.slow
def test_a_sharing_method_is_two_files(copy: Path) -> None:
    with (copy / "fairseq_tiedemb/sharing.py").open("a") as file:
        file.write(METHOD)
    laws = ("tests/test_sharing.py", "tests/test_embedding.py", "tests/test_losses.py", "tests/outputs")
    models = ("tests/models/test_every_model.py", "tests/recipes/test_rows.py")
    assert "quarter-norm" in run_tests(copy, "tests/test_sharing.py", "-rf")  # it lacks its equation
    change(copy / "tests/reference.py", *EQUATION)
    printed = run_tests(copy, *laws, *models)
    assert " passed" in printed
    assert "failed" not in printed, printed
    change(copy / "fairseq_tiedemb/sharing.py", "n.pow(-0.25)", "n.pow(-0.3)")
    assert "quarter-norm" in run_tests(copy, "tests/test_sharing.py", "-rf")


@pytest.mark.slow
def test_an_output_layer_is_three_files(copy: Path) -> None:
    (copy / "fairseq_tiedemb/outputs/halved.py").write_text(HEAD)
    change(copy / "fairseq_tiedemb/outputs/ours.py", *ENTRY)
    change(copy / "fairseq_tiedemb/outputs/ours.py", *IMPORT)
    command = [sys.executable, "-m", "fairseq_cli.train", "--user-dir", copy / "fairseq_tiedemb", "--arch"]
    for preset in ("tied_lstm_lm", "tied_transformer_lm"):
        shown = subprocess.run([*command, preset, "--help"], cwd=copy, capture_output=True, text=True, check=True)
        assert "--halving" in shown.stdout
    laws = ("tests/outputs", "tests/models/test_output_layer_options.py")
    assert "test_every_registered_head_is_here" in run_tests(copy, *laws, "-rf")
    change(copy / "tests/outputs/common.py", *TESTED)
    change(copy / "tests/outputs/common.py", *IMPORT_OF_TEST)
    printed = run_tests(copy, *laws)
    assert " passed" in printed
    assert "failed" not in printed, printed
