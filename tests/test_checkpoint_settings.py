"""Settings of checkpoints are plain values, and what lacks them is no checkpoint: anything else is refused by name."""

import argparse
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_tiedemb.checkpoints.files import refusal as refusal_of
from fairseq_tiedemb.compat import checkpoints

from .conftest import InProcess
from .test_checkpoint_reading import READERS, checkpoint, error_of, refused, saved
from .untrained import write_checkpoint

# --- settings --------------------------------------------------------------------------------------------------------


def laughs(depth: int = 40) -> list[Any]:
    """A list of 2 ** depth entries, in few bytes."""
    made: list[Any] = ["ha"]
    for _ in range(depth):
        made = [made, made]
    return made


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


SETTINGS = {
    "laughs": (laughs(), "at most 100,000 settings, nested 50 deep; got more at 'x'"),
    "nested": (nested(60), "at most 100,000 settings, nested 50 deep; got more at 'a'"),
    "long together": (["a" * 10_000] * 200, "at most 1,000,000 characters; got 1,0[0-9,]+ at 'x'"),
    "long": ("x" * 1_000_001, "at most 1,000,000 characters; got 1,000,0\\d\\d at 'x'"),
    "key": ({None: 1}, "settings with names; got None among those of 'x'"),
    "resolver": ("${oc.env:HOME}", r"values; got '\$\{oc\.env:HOME\}' in 'x', which could read"),
    "resolver in text": ("a ${oc.env:HOME}", "values; got 'a .* in 'x'"),
    "doubling": ("${a}${a}", "values; got"),
    "address": ("https://example.com/codes", "local files; got 'https://example.com/codes' in 'x', which could send"),
    "address in text": ('{"codes": "S3://bucket"}', "local files; got .*bucket"),
    "address with a tab": ("ht\ttp://example.com", "local files; got .*example"),
}


@pytest.mark.parametrize("place", ["cfg", "model", "args"])
@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_are_no_plain_values_are_refused(name: str, place: str, tmp_path: Path) -> None:
    value, message = SETTINGS[name]
    changes: dict[str, Any] = {"args": argparse.Namespace(x=value)}
    if place != "args":
        changes = checkpoint(model=torch.zeros(1))["cfg"]
        changes |= {"bpe": {"x": value}} if place == "cfg" else {"model": argparse.Namespace(x=value)}
        changes = {"cfg": changes}
    refused(saved(tmp_path / "settings.pt", **changes), message)


@pytest.mark.parametrize("section", ["cfg", "args"])
def test_settings_as_text_are_refused(section: str, tmp_path: Path) -> None:
    refused(saved(tmp_path / "yaml.pt", **{section: "a: &a [x, x]\nb: [*a, *a]"}), f"got {section} as str")


def test_settings_that_checkpoints_have_are_read(tmp_path: Path) -> None:
    cfg = checkpoint()["cfg"] | {
        "distributed_training": {"distributed_init_method": "tcp://localhost:12345"},
        "bpe": {"gpt2_encoder_json": "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/encoder.json"},
        "checkpoint": {"save_dir": "s3://bucket/run", "patience": 3},
        "common": {"wandb_project": "a project", "tensorboard_logdir": "hdfs://logs", "seed": 1},
        "job_logging_cfg": {"handlers": {"console": {"stream": "ext://sys.stdout"}}},
        "optimizer": {"lr": "${optimization.lr}"},
        "optimization": {"lr": [0.1], 1: "one"},
    }
    for read in READERS:
        state = read(saved(tmp_path / "settings.pt", cfg=cfg))
        assert state["cfg"]["distributed_training"]["distributed_init_method"] == "tcp://localhost:12345"
        assert state["cfg"]["common"]["wandb_project"] == "a project"


# --- what a checkpoint is --------------------------------------------------------------------------------------------


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    refused(tmp_path / "list.pt", "a checkpoint of fairseq-train; got list instead of a dictionary")
    refused(saved(tmp_path / "key.pt", **{"model": {3: torch.ones(1)}}), "entries of the model with names; got 3")
    torch.save({**checkpoint(), 7: 1}, tmp_path / "number.pt")
    refused(tmp_path / "number.pt", "entries with names; got 7")


def test_a_checkpoint_without_a_model_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "none.pt", model=None)
    for read in READERS:
        with pytest.raises(ValueError, match="needs a checkpoint of fairseq-train; got .* holds no model. Use another"):
            read(path)


@pytest.mark.parametrize("kind", ["task", "model"])
def test_a_model_or_task_that_nobody_registered_is_named(kind: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "other.pt", cfg={**checkpoint()["cfg"], kind: {"_name": "nowhere"}})
    with pytest.raises(ValueError, match=rf"other\.pt: needs a registered {kind}; got 'nowhere'.* Use --user-dir"):
        READERS[0](path)


@pytest.mark.parametrize(
    "changes", [{"optimizer_history": []}, {"optimizer_history": 3}, {"extra_state": None}, {"cfg": {"task": 1}}]
)
def test_a_checkpoint_that_lacks_what_fairseq_reads_is_named(changes: dict[str, Any], tmp_path: Path) -> None:
    path = saved(tmp_path / "lacking.pt", **changes)
    assert str(error_of(READERS[0], path)).startswith(f"{path}: needs a whole checkpoint")


def test_a_file_of_another_program_is_whole(tmp_path: Path) -> None:
    torch.save({"model": torch.nn.Linear(2, 2).state_dict()}, tmp_path / "other.pt")
    refusal = str(error_of(READERS[0], tmp_path / "other.pt"))
    assert refusal.endswith(
        "other.pt: needs a checkpoint with the settings of fairseq-train; got one without. Use another."
    )


def test_the_average_of_a_training_is_read_the_same_way(tmp_path: Path) -> None:
    path = saved(tmp_path / "ema.pt", extra_state={"ema": {"weight": torch.ones(2)}})
    loaded = checkpoint_utils.load_ema_from_checkpoint(fpath=str(path))
    assert loaded["model"]["weight"].tolist() == [1.0, 1.0]
    without = saved(tmp_path / "without.pt")
    with pytest.raises(ValueError, match=r"without\.pt: needs a checkpoint with an average, of --store-ema; got one w"):
        checkpoint_utils.load_ema_from_checkpoint(str(without))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"ema\.pt: needs a whole checkpoint"):
        checkpoint_utils.load_ema_from_checkpoint(str(path))


@pytest.mark.parametrize("value", ["1", "TRUE", "0"])
def test_the_advice_to_run_code_is_dropped(
    value: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(checkpoints.UNSAFE, value)
    checkpoints.weights_only_by_default()
    assert checkpoints.UNSAFE not in os.environ
    assert bool(caplog.messages) == (value != "0")
    assert all("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD: ignored" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {}}, r"exactly the weights of its model; got others \(.*Missing key"),
        ({"cfg": None, "args": None}, r"the settings of a model and its task; got others \(Neither args nor cfg exist"),
        ({"cfg": {"task": {}}}, r"the settings of a model and its task; got others \(.*model"),
    ],
)
def test_a_search_names_the_file_whose_model_cannot_be_built(
    change: dict[str, Any], message: str, parallel_data: Path, tmp_path: Path, generate: InProcess
) -> None:
    write_checkpoint(tmp_path / "a.pt", parallel_data, "--arch", "tied_transformer_tiny")
    torch.save(torch.load(tmp_path / "a.pt", weights_only=False) | change, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=rf"a\.pt: needs {message}.*Use those of the training as they were saved"):
        generate(parallel_data, "--path", tmp_path / "a.pt")


@pytest.mark.parametrize("text", ["CUDA out of memory", "DataLoader worker exited unexpectedly"])
def test_errors_that_are_not_of_weights_stay_what_they_are(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_utils, "load_checkpoint_to_cpu", mock.Mock(side_effect=RuntimeError(text)))
    monkeypatch.setattr(checkpoint_utils.PathManager, "exists", lambda path: True)
    with pytest.raises(RuntimeError, match=text):
        checkpoint_utils.load_model_ensemble_and_task(["x.pt"])


def test_a_checkpoint_without_a_part_is_named(tmp_path: Path) -> None:
    refusal = refusal_of(f"{tmp_path}/x.pt", KeyError("extra_state"))
    assert refusal == f"{tmp_path}/x.pt: needs a checkpoint with 'extra_state'; got one without. Use another."
    assert "x.pt: needs a whole checkpoint; got one that cannot be read (7)" in refusal_of("x.pt", KeyError(7))
