"""Sharing methods from outside the package: README's, and those of installed packages."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fairseq_tiedemb import sharing
from fairseq_tiedemb.sharing import SHARING_METHODS

from .conftest import RunCommand
from .documents import REPOSITORY, blocks

CONFIG = Path(__file__).parent.parent / "fairseq_tiedemb" / "config"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder for `--user-dir` with README's lines for a new method."""
    [code] = [code for code in blocks(REPOSITORY / "README.md", "python") if "SharingMethod" in code]
    (tmp_path / "my_methods").mkdir()
    (tmp_path / "my_methods/__init__.py").write_text(code)
    return tmp_path / "my_methods"


def test_the_readmes_method_trains_scores_and_is_asked_for_by_name(
    lm_data: Path, plugin: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    name = re.search(r'name="([\w-]+)"', (plugin / "__init__.py").read_text())[1]
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    run_command(
        *("train", lm_data, "--arch", "tied_lstm_lm", "--task", "language_modeling", "--sharing-method", name),
        *("--share-decoder-input-output-embed", "--decoder-embed-dim", 8, "--decoder-hidden-size", 8),
        *("--sample-break-mode", "eos", "--criterion", "tied_cross_entropy", "--optimizer", "adam", "--lr", 0.01),
        *("--batch-size", 8, "--max-update", 5, "--no-epoch-checkpoints", "--save-dir", tmp_path / "run"),
        user_dir=plugin,
        env=environment,
    )
    checkpoint = tmp_path / "run" / "checkpoint_last.pt"
    state = torch.load(checkpoint, weights_only=True)["model"]
    assert any("method_parameters" in key for key in state)
    evaluate = ("eval-lm", lm_data, "--path", checkpoint, "--sample-break-mode", "eos")
    assert "Perplexity" in run_command(*evaluate, user_dir=plugin, env=environment).stderr
    refused = run_command(*evaluate, check=False)
    assert refused.returncode != 0
    assert f"--sharing-method: needs a registered method; got '{name}'. Use one of: plain, l2-input" in refused.stderr


def test_a_penalty_from_outside(lm_data: Path, run_command: RunCommand, tmp_path: Path) -> None:
    [code] = [
        code for code in blocks(REPOSITORY / "fairseq_tiedemb/models/README.md", "python") if "Regularizer" in code
    ]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").write_text(code)
    flags = ("--arch", "zaremba_lm_small_wt", "--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--max-update", 1)
    flags += ("--no-save", "--row-regularization", 50)
    environment = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    printed = run_command("train", lm_data, *flags, user_dir=tmp_path / "mine", env=environment).stdout
    assert float(re.search(r"penalty (\S+)", printed)[1]) > 1


def test_a_model_from_outside(lm_data: Path, run_command: RunCommand, tmp_path: Path) -> None:
    """It trains, its vectors are those of its method, and another method does not read its checkpoint."""
    [code] = [code for code in blocks(REPOSITORY / "fairseq_tiedemb/models/README.md", "python") if "my_gru" in code]
    (tmp_path / "my_model").mkdir()
    (tmp_path / "my_model/__init__.py").write_text(code)
    outside: dict[str, Any] = {
        "user_dir": tmp_path / "my_model",
        "env": {"PYTHONPATH": str(Path(__file__).parent.parent)},
    }
    flags = ("--task", "language_modeling", "--arch", "my_gru", "--width", 8, "--sample-break-mode", "eos")
    flags += ("--optimizer", "adam", "--lr", 0.01, "--batch-size", 8, "--save-dir", tmp_path / "run")
    train = ("train", lm_data, *flags, "--no-epoch-checkpoints")
    run_command(*train, "--sharing-method", "l2-input", "--max-update", 2, **outside)
    checkpoint = tmp_path / "run/checkpoint_last.pt"
    refused = run_command(*train, "--sharing-method", "distance", "--max-update", 4, check=False, **outside)
    assert "--sharing-method: needs l2-input, with which the weights of" in refused.stderr
    evaluate = ("eval-lm", lm_data, "--path", checkpoint, "--sample-break-mode", "eos")
    assert "Perplexity" in run_command(*evaluate, **outside).stderr
    command = ("fairseq_tiedemb.cli", "vectors", checkpoint, "--role", "in", "--output", tmp_path / "vectors")
    run_command(*command, "--user-dir", outside["user_dir"], env=outside["env"])
    rows = [line.split()[1:] for line in (tmp_path / "vectors").read_text().splitlines()[1:]]
    assert torch.tensor([[float(number) for number in row] for row in rows]).norm(dim=1) == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_hydra_takes_a_method_from_outside(
    lm_data: Path, plugin: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    settings = (
        f"--config-dir {CONFIG} --config-name zaremba_lm_small_wt model.sharing_method=scaled-distance "
        f"model.decoder_embed_dim=8 model.decoder_hidden_size=8 task.data={lm_data} optimization.max_update=3 "
        f"checkpoint.save_dir={tmp_path}/run common.user_dir={plugin}"
    )
    environment = {"PYTHONPATH": str(CONFIG.parent.parent)}
    run_command("fairseq_cli.hydra_train", *settings.split(), cwd=tmp_path, env=environment, fresh=True)
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)["model"]
    assert any("method_parameters" in key for key in state)


@pytest.mark.parametrize(
    ("source", "got"),
    [
        (None, r"ModuleNotFoundError \(No module named 'broken_methods'\)"),
        ("raise RuntimeError('of another torch')", r"RuntimeError \(of another torch\)"),
        (
            "from fairseq_tiedemb import SharingMethod\nMETHOD = SharingMethod(name='plain', summary='', source='')",
            r"ValueError \(sharing method: needs an unused name; got 'plain'",
        ),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named_and_stops_nobody(
    source: str | None, got: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(tmp_path, "broken", "mine = broken_methods:METHOD")
    if source is not None:
        (tmp_path / "broken_methods.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_methods", raising=False)
    SHARING_METHODS.load.cache_clear()
    assert "plain" in sharing.SHARING_METHODS.names()
    assert re.search(f"of the package 'broken': need .*; got {got}.* for mine = broken_methods:METHOD", caplog.text)
    SHARING_METHODS.load.cache_clear()


def test_methods_of_installed_packages(run_command: RunCommand, tmp_path: Path) -> None:
    """A process that has never heard of the package takes what its entry points name; a percent sign is no format."""
    (tmp_path / "other_methods.py").write_text(
        "from fairseq_tiedemb import SharingMethod\n"
        "METHOD = SharingMethod(name='half', summary='50% of it', source='')\n"
    )
    (tmp_path / "more_methods.py").write_text(
        "from fairseq_tiedemb import SharingMethod, register_sharing_method\n"
        "register_sharing_method(SharingMethod(name='fourths', summary='a fourth', source=''))\n"
    )
    install(tmp_path, "other", "half = other_methods:METHOD\nmodule = more_methods")
    printed = run_command("train", "--arch", "tied_lstm_lm", "--help", cwd=tmp_path, loads_plugin=True).stdout
    assert "half (50% of it)" in " ".join(printed.split())
    assert ",half,fourths}" in printed


def install(folder: Path, name: str, entry_points: str) -> None:
    """Makes a package of a folder that is searched for modules look installed."""
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{SHARING_METHODS.group}]\n{entry_points}\n")
