"""The package in fresh processes: without fairseq, before it, after it."""

import argparse
import importlib
import pydoc_data.topics
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

import fairseq_tiedemb
from fairseq_tiedemb.checkpoints.reading import read_checkpoint

from .hidden import ROOT, python, run_example, without_fairseq

EXAMPLES = ROOT / "examples" / "plain_pytorch"

# What another library would notice.
NOTICED = """
import logging, sys, warnings
import numpy.ma, numpy.typing, torch  # numpy.ma: numpy loads it when it is used
def noticed():
    root = logging.getLogger()
    return {
        "warnings": [*warnings.filters, warnings.showwarning],
        "numpy": [*sorted(vars(numpy)), numpy.percentile],
        "logging": [root.level, *root.handlers, *root.filters],
        "sys": [*sys.path, *sys.meta_path, sys.excepthook],
        "torch": [torch.load, torch.get_default_dtype(), torch.initial_seed(), torch.is_grad_enabled()],
        "classes": {*torch.serialization.get_safe_globals()},  # torch keeps them in no order
    }
before = noticed()
"""
# Fails with the names of what has changed.
UNCHANGED = """
assert noticed() == before, [name for name, value in noticed().items() if value != before[name]]
"""
CORE = """
import importlib, pkgutil
from fairseq_tiedemb import *
import fairseq_tiedemb.checkpoints.averages, fairseq_tiedemb.analysis.curves
import fairseq_tiedemb.analysis.norms, fairseq_tiedemb.checkpoints.files
import fairseq_tiedemb.modules, fairseq_tiedemb.ngram, fairseq_tiedemb.vectors.sources
for each in pkgutil.iter_modules(fairseq_tiedemb.modules.__path__, "fairseq_tiedemb.modules."):
    importlib.import_module(each.name)
"""
USE = """
torch.manual_seed(1)
features, target = torch.randn(5, 4), torch.arange(5)
table = SharedEmbedding(6, 4, 0, method="cosine")
expected = torch.nn.functional.cross_entropy(table.scores(features), target, reduction="sum")
torch.testing.assert_close(table.loss(features, target).loss, expected)
expected = torch.nn.functional.cross_entropy(features @ table.weight.t(), target, reduction="sum")
torch.testing.assert_close(output_loss(features, table.weight, target).loss, expected)
assert table.embed(target).shape == (5, 4)
"""
# The commands that read checkpoints; fails if they have imported fairseq.
READ = """
import os
from fairseq_tiedemb.cli import main
path = sys.argv[1]
assert main(["norms", path]) == 0
assert main(["average", "--inputs", path, path, "--output", path + ".mean"]) == 0
assert main(["norms", path + ".mean"]) == 0
assert "fairseq" not in sys.modules
"""
SEPARATOR = "--- next"
DICTIONARY = f"""
import contextlib
from pathlib import Path
from fairseq_tiedemb.checkpoints.reading import read_checkpoint
other = os.path.dirname(path) + "/y"
print("{SEPARATOR}")
print(read_checkpoint(Path(other), flag="X")["task_state"]["dictionaries"][0].symbols)
print("{SEPARATOR}")
with contextlib.redirect_stderr(sys.stdout):
    print(main(["average", "--inputs", other, "--output", other + ".mean"]))
print("{SEPARATOR}")
"""
NEED_FAIRSEQ = "plugin models tasks criterions optim compat models.transformer".split()
NEEDS = f"""
for name in 2 * {NEED_FAIRSEQ}:
    try:
        importlib.import_module(f"fairseq_tiedemb.{{name}}")
    except ModuleNotFoundError as error:
        print("{SEPARATOR}", name, error.name)
"""


# ---------------------------------------------------------------------------------------------------------------------
# Without fairseq
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A checkpoint with all that fairseq-train saves besides tensors."""
    cfg = {"task": {"_name": "translation"}, "model": argparse.Namespace(_name="transformer")}
    numbers = {"val_loss": np.float64(2.5), "order": np.arange(3)}
    torch.save({"cfg": cfg, "model": {"embed_tokens.weight": torch.ones(5, 4)}, "extra_state": numbers}, tmp_path / "x")
    return tmp_path / "x"


def test_neither_the_package_nor_its_commands_import_before_they_must():
    program = "import sys; from fairseq_tiedemb.cli import main; main(['path']); print(*sys.modules)"
    folder, loaded = python(program).split("\n", 1)
    assert folder == str(ROOT / "fairseq_tiedemb")
    assert {"fairseq", "torch", "numpy"}.isdisjoint(loaded.split())


def test_the_core_needs_torch_alone_and_changes_nothing_global(trained):
    """And reads checkpoints; one with a dictionary in it is not saved; what needs fairseq says so, each time."""
    state = read_checkpoint(trained, flag="X")
    torch.save({**state, "task_state": {"dictionaries": [Dictionary()]}}, trained.with_name("y"))
    again = "before = noticed()\n"
    program = NOTICED + CORE + UNCHANGED + USE + again + READ + UNCHANGED + DICTIONARY + NEEDS
    read, words, status, said, *needs = without_fairseq(program, str(trained)).split(SEPARATOR)
    assert read.count("embed_tokens.weight") == 2
    assert type(read_checkpoint(Path(f"{trained}.mean"), flag="X")["cfg"]["model"]) is argparse.Namespace
    assert words.strip() == str(Dictionary().symbols)
    assert "fairseq: needs to be installed where a checkpoint with a dictionary in it is saved" in status + said
    assert sorted(path.name for path in trained.parent.iterdir()) == ["x", "x.mean", "y"]
    assert [each.split() for each in needs] == [[name, "fairseq"] for name in 2 * NEED_FAIRSEQ]


def test_commands_that_read_checkpoints_leave_fairseq_alone(trained):
    assert python(NOTICED + READ + UNCHANGED, str(trained)).count("embed_tokens.weight") == 2


def test_counting_ngrams_needs_numpy_alone():
    loaded = without_fairseq("""
import contextlib, sys
from fairseq_tiedemb.cli import main
with contextlib.suppress(SystemExit):
    main(["ngram", "--help"])
print(*sys.modules)
""").split()
    assert "--order" in loaded
    assert "numpy" in loaded
    assert {"fairseq", "torch"}.isdisjoint(loaded)


def test_a_language_model_in_plain_pytorch(monkeypatch, capsys):
    monkeypatch.setattr(pydoc_data.topics, "topics", dict([*pydoc_data.topics.topics.items()][::3]))
    monkeypatch.setattr(sys, "argv", ["language_model.py", "--method", "cosine", "--epochs", "1"])
    runpy.run_path(str(EXAMPLES / "language_model.py"), run_name="__main__")
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("cosine: ")
    types = int(printed[0].split(", ")[1].split()[0].replace(",", ""))
    assert float(printed[1].split()[-6]) < types / 5  # types is what chance would have


@pytest.mark.slow
def test_a_table_under_the_head_of_a_hugging_face_model():
    for package in ("transformers", "accelerate"):
        pytest.importorskip(package)
    *_, losses, said = run_example(EXAMPLES / "huggingface.py", "--method", "square-output").splitlines()
    ours, theirs = (float(part.split()[-1]) for part in losses.split(","))
    assert ours == pytest.approx(theirs, abs=2e-4)
    assert f'SENTENCE = "{said}"\n' in (EXAMPLES / "huggingface.py").read_text()


# ---------------------------------------------------------------------------------------------------------------------
# With fairseq
# ---------------------------------------------------------------------------------------------------------------------

# First imports of a process; after each of them, fairseq is mended and has all that is ours.
FIRST_IMPORTS = (
    "import fairseq, fairseq_tiedemb",
    "from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM",
    "from fairseq_tiedemb.compat.user_dir import *; utils.import_user_module(Namespace(user_dir=str(PACKAGE)))",
)
# Each in a process of its own, forked from one that has imported what takes long, but neither fairseq nor us.
FORKS = """
import os, sys
from argparse import Namespace
import hydra, numpy, omegaconf, sacrebleu, sklearn, torch
for first in {first_imports}:
    if os.fork() == 0:
        try:
            exec(first)
            import fairseq
            from fairseq import checkpoint_utils, optim, tasks, utils
            names = {{
                *fairseq.models.MODEL_REGISTRY, *tasks.TASK_REGISTRY, *optim.OPTIMIZER_REGISTRY,
                *fairseq.criterions.CRITERION_REGISTRY,
            }}
            assert {{"tied_transformer", "highway_lm", "contiguous_lm", "fused_adam", "tied_cross_entropy"}} <= names
            assert numpy.float is float and checkpoint_utils.load_checkpoint_to_cpu.__wrapped__
            assert not hasattr(utils.import_user_module.__wrapped__, "__wrapped__")  # wrapped once
            print("mended after", first, flush=True)
        except BaseException as error:
            print("not mended after", first, repr(error), flush=True)
        os._exit(0)
    os.wait()
"""


def test_the_plugin_comes_by_every_way_to_it():
    printed = python(FORKS.format(first_imports=FIRST_IMPORTS)).splitlines()
    assert [line for line in printed if "mended" in line] == [f"mended after {first}" for first in FIRST_IMPORTS]


def test_public_names_are_all_there():
    assert {*fairseq_tiedemb.__all__, "models", "__version__"} <= {*dir(fairseq_tiedemb)}
    assert {"SharedEmbedding", "output_loss", "register_sharing_method"} <= {*fairseq_tiedemb.__all__}
    for name in fairseq_tiedemb._homes():
        assert getattr(fairseq_tiedemb, name)


def test_names_are_those_of_their_modules():
    module = importlib.import_module("fairseq_tiedemb.losses")
    assert fairseq_tiedemb.output_loss is module.output_loss
    assert fairseq_tiedemb.sharing is sys.modules["fairseq_tiedemb.sharing"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fairseq_tiedemb' has no attribute 'SharedEmbeddings'"):
        _ = fairseq_tiedemb.SharedEmbeddings
