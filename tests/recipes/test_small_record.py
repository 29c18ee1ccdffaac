"""The recipe of the best small language model: its commands, its choice by the validation set, a whole run."""

import re
import sys
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .corpora import write_ptb
from .shell import RECIPES, command_of, dry_run, option, refusal, run_python, run_recipe

RECIPE = "train-small-record.sh"
PRESETS = {"untied": "gal_lm_small", "wt": "gal_lm_small_wt", "wt-pr": "gal_lm_small_wt"}


def prepared(folder: Path) -> Path:
    (folder / "ptb/bin").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("row", PRESETS)
def test_the_commands_of_a_row(row: str, tmp_path: Path) -> None:
    commands = dry_run(RECIPE, row, RUNS=prepared(tmp_path), GPUS=0)
    train = command_of(commands, "fairseq-train")
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), train[1:]))
    assert (cfg.model._name, cfg.checkpoint.save_dir) == (PRESETS[row], f"{tmp_path}/ptb/record-{row}-1")
    assert (cfg.task.tokens_per_sample, cfg.optimization.max_epoch, cfg.ema.store_ema) == (35, 40, True)
    assert [cfg.model[f"dropout_{place}"] for place in ("words", "inputs", "states", "outputs")] == [0.1, 0.2, 0.1, 0.2]
    assert (cfg.lr_scheduler.force_anneal, cfg.optimization.clip_norm) == (12, 5.0)
    projects = row == "wt-pr"
    assert (cfg.model.projection, cfg.model.projection_bias) == (projects, projects)
    assert cfg.criterion.projection_regularization == 0.15 * projects
    # The test set is read once, when the validation set has chosen.
    scores = [words for words in commands if words[0] == "fairseq-eval-lm"]
    assert [option(words, "--gen-subset") for words in scores] == ["valid", "valid", "test"]


def test_tuning_leaves_the_test_set_alone(tmp_path: Path) -> None:
    commands = dry_run(RECIPE, "wt", RUNS=prepared(tmp_path), SPLITS="valid", INPUTS="0.3", ANNEAL=20)
    assert {option(words, "--gen-subset") for words in commands if words[0] == "fairseq-eval-lm"} == {"valid"}
    train = command_of(commands, "fairseq-train")
    assert (option(train, "--dropout-inputs"), option(train, "--force-anneal")) == ("0.3", "20")
    assert option(train, "--save-dir") == f"{tmp_path}/ptb/record-wt-1-INPUTS-0.3-ANNEAL-20"


@pytest.mark.parametrize(
    ("args", "variables", "message"),
    [
        ([], {}, "needs one ROW; got 0 arguments"),
        (["pr"], {}, "ROW: needs untied, wt or wt-pr; got pr"),
        (["wt"], {"SPLITS": "test"}, "SPLITS: needs valid, or valid and test; got test"),
    ],
)
def test_refused(args: list[str], variables: dict[str, object], message: str, tmp_path: Path) -> None:
    assert message in refusal(RECIPE, *args, RUNS=tmp_path, **variables)


@pytest.mark.parametrize(("ema", "best", "chosen"), [(90.5, 100.25, "ema"), (100.25, 90.5, "best")])
def test_the_validation_set_chooses(ema: float, best: float, chosen: str, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    score = f'case "$*" in *_ema.pt*) p={ema} ;; *) p={best} ;; esac'
    scripts = {
        "fairseq-train": "true",
        "fairseq-eval-lm": f'{score}; echo "Evaluated 82,430 tokens in 1s"; echo "Loss (base 2): 1, Perplexity: $p"',
        "python": f'case "$1" in */ema.py) ;; *) exec {sys.executable} "$@" ;; esac',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    process = run_recipe(
        RECIPE, "wt", RUNS=prepared(tmp_path), RESULTS=tmp_path / "results", PATH=f"{programs}:/usr/bin:/bin"
    )
    assert process.returncode == 0, process.stderr
    result = (tmp_path / "results/small-record/wt-1.json").read_text()
    assert f"checkpoint_{chosen}.pt" in result
    assert re.findall(r'"value": ([\d.]+)', result) == ["90.5", "90.5"]


def test_the_moving_average_becomes_the_model(tmp_path: Path) -> None:
    checkpoint = {
        "model": {"w": torch.zeros(2)},
        "extra_state": {"ema": {"w": torch.ones(2)}, "epoch": 3},
        "last_optimizer_state": {"step": 1},
        "cfg": {"a": 1},
    }
    torch.save(checkpoint, tmp_path / "last.pt")
    process = run_python(RECIPES / "ema.py", tmp_path / "last.pt", tmp_path / "ema.pt")
    assert process.returncode == 0, process.stderr
    found = torch.load(tmp_path / "ema.pt", weights_only=True)
    assert found["model"]["w"].tolist() == [1, 1]
    assert found["extra_state"] == {"epoch": 3}
    assert (found["last_optimizer_state"], found["cfg"]) == (None, {"a": 1})


def test_a_checkpoint_without_moving_average(tmp_path: Path) -> None:
    torch.save({"model": {}, "extra_state": {}}, tmp_path / "last.pt")
    process = run_python(RECIPES / "ema.py", tmp_path / "last.pt", tmp_path / "ema.pt")
    assert process.returncode == 1
    assert f"ema.py: {tmp_path}/last.pt: needs a moving average; got a checkpoint without" in process.stderr
    assert not (tmp_path / "ema.pt").exists()


@pytest.mark.slow
def test_whole_recipe(tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    process = run_recipe(RECIPE, "wt-pr", **source, RUNS=tmp_path / "runs", SMOKE=1, GPUS=0)
    assert process.returncode == 0, process.stderr
    assert len(re.findall(r"Perplexity: ([\d.]+)", process.stdout)) == 2
