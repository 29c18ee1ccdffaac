"""Language models through fairseq's commands: training in all its ways, resume, evaluation, decoding, and refusals.

Each command runs in a process of its own once; where only its options differ, its `main` is called here, which is
quicker. What is rarer is marked slow.
"""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import data_utils
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

from fairseq_tiedemb.models.highway_lm import HighwayLM
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM

from .conftest import USER_DIR, Evaluate, InProcess, MadeOnce, RunCommand
from .runs import assert_same_weights, model_state, tokens
from .test_compat_commands import logged, losses, noise

LOGS = ("--log-format", "json", "--num-workers", 0)
# Five updates an epoch and more; dropout, so that random numbers are seen.
SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--tokens-per-sample", 5, "--batch-size", 6)
PRESET = ("--arch", "zaremba_lm_small_wt_pr", *SIZES, *LOGS)
DROPOUT = ("--dropout", 0.2)
STREAM = ("--task", "contiguous_lm")


@pytest.fixture(scope="module")
def language_model(run_command: RunCommand, lm_data: Path, made_once: MadeOnce) -> tuple[Path, Any]:
    """Checkpoints of a tied model that has begun to learn, and the command that trained it."""
    flags = (*PRESET, *DROPOUT, "--max-epoch", 2, "--save-dir")
    return made_once("zaremba_lm_small_wt_pr", lambda folder: run_command("train", lm_data, *flags, folder))


@pytest.fixture
def path(language_model: tuple[Path, Any]) -> tuple[str, Path]:
    """`--path` and the last checkpoint."""
    return "--path", language_model[0] / "checkpoint_last.pt"


# --- training --------------------------------------------------------------------------------------------------------


def test_a_preset_is_the_whole_command(language_model: tuple[Path, Any], lm_data: Path) -> None:
    folder, command = language_model
    shares = "shares input = output (weight tying) by method plain, with P and its bias; "
    assert f"zaremba_lm_small_wt_pr: {shares}" in command.stdout
    assert noise(command.stdout + command.stderr) == []
    assert logged(command.stdout, "train_bsz") == [6, 6]
    rows = math.ceil(tokens(lm_data, "train") / 6)
    assert logged(command.stdout, "train_num_updates") == [math.ceil(rows / 5) * epoch for epoch in (1, 2)]
    assert logged(command.stdout, "train_lr") == [1, 1]
    assert logged(command.stdout, "train_penalty")[0] > 0
    first, second = logged(command.stdout, "valid_ppl")
    assert second < first < 16  # words of the dictionary
    assert {"checkpoint1.pt", "checkpoint2.pt"} < {each.name for each in folder.iterdir()}
    state = model_state(folder)
    assert torch.equal(state["decoder.embed_tokens.weight"], state["decoder.output.weight"])


def test_updates_may_have_several_chunks(train: InProcess, lm_data: Path) -> None:
    text = train(lm_data, *PRESET, "--update-freq", 2, "--max-epoch", 2, "--no-save")
    chunks = math.ceil(math.ceil(tokens(lm_data, "train") / 6) / 5)
    assert logged(text, "train_num_updates")[0] == math.ceil(chunks / 2)
    assert logged(text, "train_bsz")[0] == pytest.approx(6 * chunks / math.ceil(chunks / 2), abs=0.1)
    first, second = logged(text, "train_ppl")
    assert second < first


def test_other_criterions_optimizers_and_schedules_train(train: InProcess, lm_data: Path) -> None:
    flags = "--criterion cross_entropy --optimizer adam --lr 0.01 --lr-scheduler inverse_sqrt --warmup-updates 4"
    text = train(lm_data, *PRESET, *flags.split(), "--clip-norm", 0.1, "--max-epoch", 2, "--no-save")
    assert "CrossEntropyCriterion" in text
    warning = "--criterion CrossEntropyCriterion: trains without --projection-regularization 0.15, which belongs to"
    assert text.count(warning) == 1
    assert logged(text, "train_clip") == [100, 100]
    assert "train_penalty" not in text
    first, second = logged(text, "train_ppl")
    assert second < first
    assert logged(text, "train_lr")[0] < 0.01


def test_fairseqs_criterion_trains_the_same(train: InProcess, lm_data: Path) -> None:
    flags = ("--arch", "zaremba_lm_small_wt", *SIZES, *LOGS, *DROPOUT, "--max-epoch", 1, "--no-save")
    ours, theirs = (train(lm_data, *flags, "--criterion", name) for name in ("tied_cross_entropy", "cross_entropy"))
    for name in ("train_loss", "valid_loss", "train_gnorm"):
        assert logged(theirs, name) == pytest.approx(logged(ours, name), abs=2e-3), name  # three digits are shown


def test_bfloat16_trains_on_a_cpu(train: InProcess, lm_data: Path) -> None:
    flags = (*PRESET, "--batch-size", 20, "--max-epoch", 2, "--no-save")
    expected, found = (logged(train(lm_data, *flags, *more), "train_loss") for more in ((), ("--bf16",)))
    assert found == pytest.approx(expected, rel=2e-2)  # bfloat16 has eight bits


@pytest.mark.parametrize("preset", ["gal_lm_large_wt", "highway_lm_8x890_wt"])
def test_every_family_trains_by_its_recipe(preset: str, train: InProcess, lm_data: Path) -> None:
    text = train(lm_data, "--arch", preset, *SIZES, *LOGS, "--batch-size", 12, "--max-epoch", 2, "--no-save")
    first, second = logged(text, "valid_ppl")
    assert second < first
    assert ("train_penalty" in text) == preset.startswith("highway")  # its weight decay is in the loss
    assert "trains without" not in text


@pytest.mark.parametrize(
    ("arch", "criterion"),
    [
        pytest.param("zaremba_lm_small", "adaptive_loss", marks=pytest.mark.slow),
        ("zaremba_lm_small_wt_pr", "adaptive_loss"),
        ("zaremba_lm_small_wt_pr", "tied_cross_entropy"),
    ],
)
def test_an_adaptive_softmax_trains_and_scores_every_token(
    arch: str, criterion: str, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    flags = ("--criterion", criterion, "--ddp-backend", "legacy_ddp", "--adaptive-softmax-cutoff", "6,10")
    flags += ("--batch-size", 12, "--lr", 0.4, "--max-epoch", 2, "--no-epoch-checkpoints", "--save-dir", tmp_path)
    text = train(lm_data, "--arch", arch, *SIZES, *LOGS, *flags)
    first, second = logged(text, "train_ppl")
    assert second < first
    shares = "nothing" if arch == "zaremba_lm_small" else "input = output in bands (weight tying)"
    assert f"{arch}: shares {shares} by method plain" in text
    lost, penalty = arch.endswith("_pr") and criterion == "adaptive_loss", "tied" in criterion
    assert ("AdaptiveLoss: trains without --projection-regularization 0.15" in text) == lost
    assert ("train_penalty" in text) == penalty
    path = (*STREAM, "--path", tmp_path / "checkpoint_last.pt", "--tokens-per-sample")
    count, perplexity = evaluate(lm_data, *path, 5)
    assert count == tokens(lm_data, "test")
    assert evaluate(lm_data, *path, 1024) == (count, pytest.approx(perplexity, abs=0.011))


def test_epochs_take_folders_in_turn(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    shorter = first_tokens(lm_data, 600, tmp_path / "shorter")
    text = train(f"{lm_data}:{shorter}", *PRESET, "--max-epoch", 3, "--no-save")
    ends = logged(text, "train_num_updates")
    updates = [math.ceil(math.ceil(tokens(folder, "train") / 6) / 5) for folder in (lm_data, shorter, lm_data)]
    assert ends == [sum(updates[: epoch + 1]) for epoch in range(3)]
    assert updates[0] != updates[1]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["zaremba_lm_small_wt_pr", "gal_lm_large_wt", "highway_lm_8x890_wt"])
def test_hydra_trains_and_resumes_a_tied_model(
    preset: str, run_command: RunCommand, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    settings = ["model.decoder_embed_dim=16", "model.decoder_hidden_size=16", "task.tokens_per_sample=5"]
    settings += ["dataset.batch_size=6", "dataset.num_workers=0", "common.log_format=json", f"task.data={lm_data}"]
    settings += ["optimization.max_epoch=2", f"checkpoint.save_dir={tmp_path / 'hydra'}"]
    name = ("--config-dir", USER_DIR / "config", "--config-name", preset)
    first = run_command("hydra-train", *name, *settings, "optimization.max_epoch=1", cwd=tmp_path)
    hydra = run_command("hydra-train", *name, *settings, cwd=tmp_path)
    assert "Loaded checkpoint" in hydra.stdout
    flags = ("--arch", preset, *SIZES, *LOGS, "--max-epoch", 2)
    command_line = train(lm_data, *flags, "--save-dir", tmp_path / "command_line")
    assert losses(first.stdout + hydra.stdout) == losses(command_line)
    assert f"{preset}: shares input = output (weight tying)" in hydra.stdout
    assert_same_weights(tmp_path / "hydra", tmp_path / "command_line")
    family = HighwayLM if preset.startswith("highway") else TiedLSTMLM
    loaded = family.from_pretrained(str(tmp_path / "hydra"), "checkpoint_last.pt", str(lm_data)).models[0]
    assert loaded.decoder.embed_tokens is loaded.decoder.output.head
    assert evaluate(lm_data, *STREAM, "--path", tmp_path / "hydra" / "checkpoint_last.pt")[0] > 0


# --- resume ----------------------------------------------------------------------------------------------------------


def test_resume_with_batches_of_another_shape_is_refused(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    flags = (*PRESET, *DROPOUT, "--save-dir", tmp_path, "--max-update")
    train(lm_data, *flags, 7)
    for more in (("--batch-size", 7), ("--batch-size", 1), ("--tokens-per-sample", 10)):
        with pytest.raises(ValueError, match=f"{more[0]}: needs [56] .* got {more[1]}. .* --reset-dataloader"):
            train(lm_data, *flags, 60, *more)
    train(lm_data, *flags, 9, *more, "--reset-dataloader")
    train(lm_data, *flags, 11, *more)
    with pytest.raises(ValueError, match="--random-length: needs no such flag .* got it with --seed 1. .* --reset-dat"):
        train(lm_data, *flags, 60, *more, "--random-length")
    with pytest.raises(
        ValueError, match="--sample-break-mode: needs none in the middle of an epoch.* got eos. .* --reset"
    ):
        train(lm_data, *flags, 60, *more, "--sample-break-mode", "eos")


def test_an_epoch_without_its_last_batch_ends_the_text(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    flags = (*PRESET, "--skip-remainder-batch", "--save-dir", tmp_path, "--max-epoch")
    train(lm_data, *flags, 1)
    assert "begin training epoch 2" in train(lm_data, *flags, 2, "--batch-size", 7).lower()


def test_validation_in_mid_epoch_changes_nothing(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    flags = (*PRESET, *DROPOUT, "--max-epoch", 1, "--no-epoch-checkpoints")
    once = train(lm_data, *flags, "--save-dir", tmp_path / "once")
    often = train(lm_data, *flags, "--validate-interval-updates", 7, "--save-dir", tmp_path / "often")
    assert (len(logged(often, "valid_ppl")), len(logged(once, "valid_ppl"))) == (4, 1)
    assert_same_weights(tmp_path / "often", tmp_path / "once")


# --- several processes -----------------------------------------------------------------------------------------------


# Of 729 tokens in 8 rows, the second of two processes has one left in an epoch's last step, and the first none.
UNEVEN = 729
ROWS, CHUNK = 8, 7


def first_tokens(data: Path, number: int, folder: Path) -> Path:
    """A corpus whose training text has fewer tokens."""
    shutil.copytree(data, folder)
    text = torch.cat(list(data_utils.load_indexed_dataset(f"{data}/train")))
    builder = MMapIndexedDatasetBuilder(f"{folder}/train.bin")
    builder.add_item(text[:number])
    builder.finalize(f"{folder}/train.idx")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_two_processes_are_one_with_twice_the_rows(
    backend: str, run_command: RunCommand, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    data = first_tokens(lm_data, UNEVEN, tmp_path / "data")
    flags = (*PRESET, "--tokens-per-sample", CHUNK, "--max-epoch", 2, "--no-epoch-checkpoints")
    one = train(data, *flags, "--batch-size", ROWS, "--save-dir", tmp_path / "one")
    several = ("--distributed-world-size", 2, "--ddp-backend", backend, "--batch-size", ROWS // 2)
    two = run_command("train", data, *flags, *several, "--save-dir", tmp_path / "two", fresh=True)
    for name in ("train_loss", "train_ppl", "train_penalty", "train_gnorm", "valid_loss", "valid_ppl", "train_wpb"):
        assert logged(two.stdout, name) == pytest.approx(logged(one, name), abs=2e-3), name  # three digits are shown
    torch.testing.assert_close(model_state(tmp_path / "two"), model_state(tmp_path / "one"), rtol=1e-4, atol=1e-5)
