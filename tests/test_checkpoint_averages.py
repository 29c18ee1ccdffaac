"""Averaging checkpoints: the mean, what stays, what is refused, and a real training whose average translates."""

import argparse
import resource
from pathlib import Path

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)
from fairseq_tiedemb.checkpoints.averages import average, last_checkpoints
from fairseq_tiedemb.checkpoints.meaning import ALL
from fairseq_tiedemb.checkpoints.reading import read_checkpoint
from fairseq_tiedemb.cli import create_parser, main

from .conftest import Cli


def save(path: Path, **model: torch.Tensor) -> Path:
    """A checkpoint in fairseq's form with these tensors."""
    state = {
        "args": None,
        "cfg": {"model": argparse.Namespace(arch=path.stem)},
        "model": model,
        "last_optimizer_state": {"state": {0: torch.ones(3)}},
        "extra_state": {"epoch": 3, "ema": {"weight": torch.ones(2)}, "ema_fp32_params": {"weight": torch.ones(2)}},
    }
    torch.save(state, path)
    return path


def numbered(folder: Path, *names: str) -> list[Path]:
    return [save(folder / name, weight=torch.tensor([float(number)])) for number, name in enumerate(names)]


def command(*args: object) -> int:
    arguments = create_parser().parse_args(["average", *map(str, args)])
    return arguments.run(arguments)


def test_the_mean_against_numpy_in_float64(tmp_path: Path) -> None:
    weights = torch.randn(3, 4, 5, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        paths = [save(tmp_path / f"{n}.pt", weight=w.to(dtype)) for n, w in enumerate(weights)]
        mean = average(paths)["model"]["weight"]
        assert mean.dtype == dtype
        torch.testing.assert_close(mean, torch.from_numpy(weights.numpy().mean(0)).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    # In half precision 4096 + 1 is 4096, and 60000 + 60000 is infinite in float16.
    columns = [(4096.0, 30000.0), *[(1.0, 60000.0)] * 3]
    paths = [save(tmp_path / f"{n}.pt", weight=torch.tensor(pair, dtype=dtype)) for n, pair in enumerate(columns)]
    mean = average(paths)["model"]["weight"]
    expected = torch.tensor(columns, dtype=dtype).double().mean(0)
    assert mean.dtype == torch.float32
    torch.testing.assert_close(mean, expected.float())


def test_what_is_no_weight_is_the_first_one_s(tmp_path: Path) -> None:
    paths = [
        save(tmp_path / f"{name}.pt", weight=torch.ones(2), steps=torch.tensor(steps), flags=torch.tensor([flag]))
        for name, steps, flag in (("new", 7, True), ("old", 4, False))
    ]
    state = average(paths)
    assert state["model"]["steps"] == 7
    assert state["model"]["steps"].dtype == torch.int64
    assert state["model"]["flags"].tolist() == [True]
    assert state["cfg"]["model"].arch == "new"
    assert state["extra_state"] == {"epoch": 3}
    assert "last_optimizer_state" not in state


def test_tied_tables_stay_one(tmp_path: Path) -> None:
    def tied(path: Path, value: float) -> Path:
        table = torch.full((3, 2), float(value))
        return save(path, input=table, output=table, other=table.clone())

    output = tmp_path / "average.pt"
    assert command("--inputs", tied(tmp_path / "a.pt", 1), tied(tmp_path / "b.pt", 2), "--output", output) == 0
    model = read_checkpoint(output, flag="X")["model"]
    assert model["input"].data_ptr() == model["output"].data_ptr() != model["other"].data_ptr()
    assert model["input"].unique().tolist() == [1.5]


def test_tables_that_are_tied_in_one_checkpoint_only_are_two(tmp_path: Path) -> None:
    table = torch.ones(2)
    tied = save(tmp_path / "a.pt", input=table, output=table)
    untied = save(tmp_path / "b.pt", input=torch.ones(2) * 3, output=torch.ones(2) * 5)
    for paths in ([tied, untied], [untied, tied]):
        model = average(paths)["model"]
        assert (model["input"].tolist(), model["output"].tolist()) == ([2, 2], [3, 3])


EPOCHS = ["checkpoint2.pt", "checkpoint10.pt", "checkpoint9.pt", "checkpoint_last.pt", "checkpoint_best.pt"]
UPDATES = ["checkpoint_1_500.pt", "checkpoint_2_1000.pt", "checkpoint_2_900.pt"]


def test_the_last_by_number_and_not_by_name(tmp_path: Path) -> None:
    numbered(tmp_path, *EPOCHS, *UPDATES, "checkpoint_1_2000.pt.tmp", "checkpoint3.pt.bak")

    def names(count: int, by_update: bool, upper_bound: int | None = None) -> list[str]:
        return [path.name for path in last_checkpoints(tmp_path, count, by_update=by_update, upper_bound=upper_bound)]

    assert names(3, False) == ["checkpoint10.pt", "checkpoint9.pt", "checkpoint2.pt"]
    assert names(1, False, 9) == ["checkpoint9.pt"]
    assert names(2, True) == ["checkpoint_2_1000.pt", "checkpoint_2_900.pt"]
    assert names(2, True, 900) == ["checkpoint_2_900.pt", "checkpoint_1_500.pt"]


def test_the_command_with_a_folder(tmp_path: Path, cli: Cli) -> None:
    numbered(tmp_path, *EPOCHS, *UPDATES)
    output = tmp_path / "average.pt"
    out = cli("average", "--inputs", tmp_path, "--num-epoch-checkpoints", 2, "--output", output).out
    files = [f"{tmp_path}/checkpoint{epoch}.pt" for epoch in (10, 9)]
    assert out.split() == [*f"{output}: the average of 2".split(), *files]
    assert read_checkpoint(output, flag="X")["model"]["weight"].item() == (1 + 2) / 2
    options = ("--num-update-checkpoints", 2, "--checkpoint-upper-bound", 950)
    cli("average", "--inputs", tmp_path, *options, "--output", output)
    assert read_checkpoint(output, flag="X")["model"]["weight"].item() == (0 + 2) / 2 + len(EPOCHS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-epoch-checkpoints", "4"], r"--num-epoch-checkpoints: needs 4 files checkpointEPOCH.pt in .*; got 3"),
        (["--num-update-checkpoints", "4"], r"needs 4 files checkpoint_EPOCH_UPDATE.pt in .*; got 3"),
        (["--num-epoch-checkpoints", "2", "--checkpoint-upper-bound", "8"], r"needs 2 files .* up to epoch 8 .*got 1"),
        (["--checkpoint-upper-bound", "8"], "--checkpoint-upper-bound: needs --num-epoch-checkpoints .*; got 8"),
        ([], "--inputs: needs checkpoints; got the folder"),
        (["../a.pt", "--num-epoch-checkpoints", "1"], "--inputs: needs one folder with --num-epoch.*; got 2 paths"),
    ],
)
def test_folders_that_are_refused(options: list[str], message: str, tmp_path: Path) -> None:
    numbered(tmp_path, *EPOCHS, *UPDATES)
    with pytest.raises(ValueError, match=message):
        command("--inputs", tmp_path, *options, "--output", tmp_path / "average.pt")
    with pytest.raises(ValueError, match="--inputs: needs one folder with --num-epoch-checkpoints; got .*2.pt"):
        command("--inputs", tmp_path / "checkpoint2.pt", "--num-epoch-checkpoints", 1, "--output", tmp_path / "a.pt")
    assert not (tmp_path / "average.pt").exists()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"weight": torch.ones(3), "bias": torch.ones(1)}, r"got weight of shape \(2,\) in the first and shape \(3,\)"),
        ({"weight": torch.ones(2)}, "got bias: .*b.pt lacks it"),
        ({"weight": torch.ones(2), "bias": torch.ones(1), "more": torch.ones(1)}, "got more: .*b.pt has it"),
        ({"weight": torch.ones(2), "bias": torch.ones(1).long()}, r"got bias of shape \(1,\) .* in whole numbers"),
        ({"weight": torch.ones(2), "bias": "text"}, r"got bias of shape \(1,\) in the first and no tensor"),
    ],
)
def test_other_models_are_refused(other: dict[str, torch.Tensor], message: str, tmp_path: Path) -> None:
    paths = [save(tmp_path / "a.pt", weight=torch.ones(2), bias=torch.ones(1)), save(tmp_path / "b.pt", **other)]
    with pytest.raises(ValueError, match=f"--inputs: needs models .*{message}"):
        command("--inputs", *paths, "--output", tmp_path / "average.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt"]


def save_trained(path: Path, *, words: str = "ab", **options: object) -> Path:
    """A checkpoint whose model has these options, trained with these words on one side."""
    state = torch.load(save(path, weight=torch.ones(2)), weights_only=False)
    kept = {"target": {"size": len(words), "sha256": words}} if words else {}
    task_state = {"dictionaries_of_training": kept} if words else {}
    torch.save({**state, "cfg": {"model": {"_name": "tied_lstm_lm", **options}}, "task_state": task_state}, path)
    return path


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ({"sharing_method": "cosine"}, {}, "got --sharing-method cosine in the first and plain in .*b.pt"),
        ({}, {"output_layer": "tree"}, "got --output-layer softmax in the first and tree in .*b.pt"),
        (
            {"share_decoder_input_output_embed": True},
            {"share_decoder_input_output_embed": False},
            "got --share-decoder-input-output-embed True in the first and False",
        ),
        ({"decoder_attention_heads": 4}, {"decoder_attention_heads": 2}, "got --decoder-attention-heads 4 .* and 2 in"),
        ({}, {"output_layer_options": "steps=2"}, "got --output-layer-options none in the first and steps=2 in .*b.pt"),
        ({}, {"words": "ba"}, "trained with one dictionary; got .*b.pt, whose target dictionary"),
    ],
)
def test_models_that_mean_something_else_are_refused(first: dict, other: dict, message: str, tmp_path: Path) -> None:
    paths = [save_trained(tmp_path / "a.pt", **first), save_trained(tmp_path / "b.pt", **other)]
    with pytest.raises(ValueError, match=f"^--inputs: needs models .*{message}"):
        command("--inputs", *paths, "--output", tmp_path / "average.pt")
    assert not (tmp_path / "average.pt").exists()
    for path in paths:
        command("--inputs", path, path, "--output", tmp_path / "average.pt")


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"sharing_method": "plain", "words": ""}, {"sharing_method": None}),
        ({"_name": "zaremba_lm_small_wt"}, {"_name": "zaremba_lm_small", "share_decoder_input_output_embed": True}),
        ({"activation_fn": "relu"}, {}),
    ],
    ids=["unset", "by a preset", "unknown"],
)
def test_the_same_said_otherwise_is_averaged(first: dict, other: dict, tmp_path: Path) -> None:
    paths = [save_trained(tmp_path / "a.pt", **first), save_trained(tmp_path / "b.pt", **other)]
    assert command("--inputs", *paths, "--output", tmp_path / "average.pt") == 0


def test_every_option_of_a_meaning_is_compared() -> None:
    choices = {choice for model in MODEL_REGISTRY.values() for choice in getattr(model, "meaning", ())}
    unset = {choice.option: {each.unset for each in choices if each.option == choice.option} for choice in choices}
    assert {choice.option: choice.unset for choice in ALL} == {
        option: values.pop() if len(values) == 1 else None for option, values in unset.items()
    }


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("poisoned", ["a.pt", "b.pt"])
def test_weights_that_are_not_finite_are_refused(value: float, poisoned: str, tmp_path: Path) -> None:
    for name in ("a.pt", "b.pt"):
        weight = torch.tensor([1, value if name == poisoned else 2])
        # The first is memory that fairseq's adaptive layers save and never fill.
        save(tmp_path / name, **{"adaptive_softmax._float_tensor": torch.tensor([value]), "weight": weight})
    output = tmp_path / "average.pt"
    message = (
        f"^--inputs: needs finite weights; got .*{poisoned} with 1 of 2 numbers of weight inf or nan. Use .* diverged.$"
    )
    with pytest.raises(ValueError, match=message):
        command("--inputs", tmp_path / "a.pt", tmp_path / "b.pt", "--output", output)
    assert not output.exists()
    clean = next(tmp_path / name for name in ("a.pt", "b.pt") if name != poisoned)
    assert command("--inputs", clean, "--output", output) == 0


class RunsCode:
    def __reduce__(self):
        return (print, ("this ran",))


def test_files_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    damaged, attack, other = (tmp_path / name for name in ("damaged.pt", "attack.pt", "other.pt"))
    damaged.write_bytes(save(tmp_path / "whole.pt", weight=torch.ones(99)).read_bytes()[:500])
    torch.save({"model": {}, "cfg": RunsCode()}, attack)
    torch.save({"weights": {}}, other)
    for path, message in (
        (tmp_path / "none.pt", "--inputs: needs a checkpoint; got .*none.pt .No such file"),
        (damaged, "--inputs: .*damaged.pt: needs a whole checkpoint"),
        (attack, "--inputs: .*attack.pt: needs tensors, numbers, text and settings only; got (builtins.)?print"),
        (other, "--inputs: .*other.pt: needs a checkpoint of fairseq-train; got one that holds no model"),
    ):
        with pytest.raises(ValueError, match=message):
            command("--inputs", path, "--output", tmp_path / "average.pt")
        assert not (tmp_path / "average.pt").exists()
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.parametrize("shape", [(300, 300), (10,)])
def test_a_full_disk_is_named_and_leaves_nothing(
    shape: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file may not grow as far as the model needs; torch has an error of its own for that, without a reason."""
    model = {f"weight{number}": torch.zeros(shape) for number in range(1 if len(shape) > 1 else 300)}
    torch.save({"model": model}, tmp_path / "a.pt")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        status = main(["average", "--inputs", str(tmp_path / "a.pt"), "--output", str(tmp_path / "out.pt")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 2
    message = f"{tmp_path}/out.pt: needs a disk that takes the whole file; got an error of the system (File too large)"
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
