"""A training that is interrupted ends bit for bit where it would have ended, with sentences as with one stream."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.trainer import Trainer

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .conftest import USER_DIR, Cli, InProcess
from .runs import assert_same, saved
from .test_compat_commands import logged

LOGS = ("--log-format", "json", "--num-workers", 0)
# Fourteen updates an epoch; dropout, so that random numbers are seen.
NMT_SIZES = ("--encoder-embed-dim", 8, "--encoder-hidden-size", 8, "--decoder-embed-dim", 8, "--decoder-hidden-size", 8)
NMT = ("--arch", "lstm_nmt_twwt", *NMT_SIZES, "--decoder-out-embed-dim", 8, "--dropout", 0.2)
NMT += ("--optimizer", "adam", "--lr", 1e-2, "--max-tokens", 80, *LOGS)
LM = ("--arch", "zaremba_lm_small_wt_pr", "--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--dropout", 0.2)
LM += ("--tokens-per-sample", 5, "--batch-size", 6, *LOGS)
SENTENCES = ("--sample-break-mode", "eos", "--tokens-per-sample", 20)
TYING = "--share-decoder-input-output-embed"


@pytest.fixture
def two_folders(lm_data: Path, tmp_path: Path) -> str:
    """Two folders of data, which epochs take in turn."""
    return f"{lm_data}:{shutil.copytree(lm_data, tmp_path / 'other')}"


# Of every family: the data, flags, and updates of an epoch; one that is rarer is slow. Fewer updates would not do: a
# training is interrupted in its second and in its third epoch.
WORD2VEC = ("--decoder-embed-dim", 8, "--max-tokens", 80, "--subsampling", 0.05, "--window", 2, "--lr", 0.05, "--cpu")
WORD2VEC = ("--arch", "word2vec_skipgram", *WORD2VEC, "--total-num-update", 36)
FEEDFORWARD = ("--arch", "feedforward_lm_wt", *LM[2:], "--lr", 0.02, "--total-num-update", 75, "--ngram-order")
NOISE = ("--arch", "zaremba_lm_small_wt", *LM[2:], "--output-layer", "nce", "--noise-samples", 20, "--batch-size", 12)
MIXTURE = ("--output-layer", "mixture", "--sharing-method", "fixnorm", "--unit-rows", "--cosine-regularization", 0.5)
TWO_WORKERS, ANEW = ("--num-workers", 2), ("--update-ordered-indices-seed",)
CHUNKS = ("--update-freq", 2, "--batch-size", 12)
CURRICULUM = ("--curriculum", 1, "--store-ema", "--ema-decay", 0.9)
CASES: dict[str, tuple[str, tuple, int]] = {
    "translation": ("parallel_data", (*NMT, "--update-freq", 2, *ANEW, *CURRICULUM), 7),
    "n-grams, several chunks": ("lm_data", (*FEEDFORWARD, 5, *MIXTURE, *CHUNKS, *TWO_WORKERS), 7),
    "noise": ("lm_data", NOISE, 13),
    "bfloat16": ("lm_data", (*LM, "--bf16"), 25),
    "skip-gram": ("lm_data", (*WORD2VEC, *TWO_WORKERS), 11),
}
SLOW_CASES: dict[str, tuple[str, tuple, int]] = {
    "translation in bfloat16": ("parallel_data", (*NMT, "--bf16", *CURRICULUM, "--ema-fp32"), 14),
    "translation in pure bfloat16": ("parallel_data", (*NMT, "--memory-efficient-bf16", "--bf16"), 14),
    "n-grams in bfloat16": ("lm_data", (*FEEDFORWARD, 5, *MIXTURE[:4], *CHUNKS, "--bf16"), 7),
    "two folders": ("two_folders", (*LM, *SENTENCES), 17),
    "skip-gram, whole softmax": ("lm_data", (*WORD2VEC, TYING, "--word2vec-output", "full"), 11),
    "skip-gram, dense": ("lm_data", (*WORD2VEC, TYING, "--optimizer", "adam"), 11),
    "curriculum": ("parallel_data", (*NMT, "--curriculum", 1), 14),
    "bigrams, several chunks": ("lm_data", (*FEEDFORWARD, 2, "--update-freq", 2, *TWO_WORKERS), 13),
    "batches of each epoch": ("parallel_data", (*NMT, *ANEW, "--update-epoch-batch-itr", "True"), 14),
    "bigrams": ("lm_data", (*FEEDFORWARD, 2), 25),
    "skip-gram, tied": ("lm_data", (*WORD2VEC, TYING, "--sharing-method", "distance"), 11),
    "skip-gram, noise of pairs": ("lm_data", (*WORD2VEC, "--noise-for", "pair"), 11),
    "skip-gram, tree": ("lm_data", (*WORD2VEC, "--word2vec-output", "tree"), 11),
    "bag of words": ("lm_data", (*WORD2VEC, TYING, "--arch", "word2vec_cbow"), 11),
}


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_CASES)])
def test_resumed_in_a_later_epoch(name: str, train: InProcess, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    data, flags, updates = (CASES | SLOW_CASES)[name]
    command = (request.getfixturevalue(data), *flags, "--max-epoch", 3, "--no-epoch-checkpoints", "--save-dir")
    for epochs, stop in ((1, 2 * updates - 3), (2, 2 * updates + 4)):
        train(*command, tmp_path / "resumed", "--max-update", stop)
        place = saved(tmp_path / "resumed")["place"]
        assert (place["updates"], place["epoch"]) == (stop, epochs + 1)
    text = train(*command, tmp_path / "resumed")
    assert f"@ {stop} updates" in text
    train(*command, tmp_path / "whole", "--num-workers", 0)  # which make no difference
    assert_same(saved(tmp_path / "resumed"), saved(tmp_path / "whole"))


def test_a_task_that_loads_its_data_once_is_resumed(
    train: InProcess, cli: Cli, parallel_data: Path, tmp_path: Path
) -> None:
    languages = ("--langs", "src,tgt", "--lang-pairs", "src-tgt", "--source-lang", "src", "--target-lang", "tgt")
    command = (parallel_data, "--task", "translation_multi_simple_epoch", *languages, *NMT, "--save-dir", tmp_path)
    for updates in (9, 20, 31):
        train(*command, "--max-update", updates)
        assert saved(tmp_path)["place"]["updates"] == updates
    (tmp_path / "dict.txt").write_bytes((parallel_data / "dict.tgt.txt").read_bytes())  # without marks of languages
    cli("vectors", tmp_path / "checkpoint_last.pt", "--role", "in", "--output", tmp_path / "vectors.txt")
    words, vectors = ((tmp_path / name).read_text().splitlines() for name in ("dict.txt", "vectors.txt"))
    assert [line.split()[0] for line in vectors[3:]] == [line.split()[0] for line in words]
    cli("untie", tmp_path / "checkpoint_last.pt", tmp_path / "untied.pt", "--data", parallel_data)


def test_a_finished_training_is_left_as_it_is(train: InProcess, parallel_data: Path, tmp_path: Path) -> None:
    """In the first epoch, at its end, and in the second."""
    command = (parallel_data, *NMT, "--no-epoch-checkpoints", "--save-dir", tmp_path, "--max-update")
    for updates in (9, 14, 20):
        train(*command, updates)
        before = saved(tmp_path)
        assert before["place"]["updates"] == updates
        text = train(*command, updates)
        assert f"--max-update {updates}: reached in {tmp_path}; a larger" in text
        assert_same(saved(tmp_path), before)


def test_what_begins_with_another_trainings_updates_is_trained(
    train: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    first, command = tmp_path / "first", (parallel_data, *NMT, "--max-update", 9, "--no-epoch-checkpoints")
    train(*command, "--save-dir", first)
    begin = ("--restore-file", first / "checkpoint_last.pt", "--save-dir")
    resets = ((), ("--reset-meters",), ("--reset-lr-scheduler", "--reset-dataloader"))
    for number, reset in enumerate(resets):
        assert "a larger one continues" not in train(*command, *begin, tmp_path / str(number), *reset)
        assert saved(tmp_path / str(number))["place"]["updates"] == 10
    # Nor where the checkpoint is its own, but something of it is to begin anew.
    shutil.copytree(first, tmp_path / "copy")
    for folder, reset in zip((first, tmp_path / "copy"), resets[1:], strict=True):
        assert "a larger one continues" not in train(*command, *reset, "--save-dir", folder)


SMALL_NMT = ("--arch", "lstm_nmt_small_wt", *NMT_SIZES, "--decoder-out-embed-dim", 8, "--max-tokens", 40, *LOGS)


@pytest.fixture
def updates_between_checkpoints(monkeypatch: pytest.MonkeyPatch) -> int:
    """Presets whose recipes save every 7 updates, which are less than a third of an epoch."""
    for preset in (ARCH_MODEL_REGISTRY[flags[1]] for flags in (LM, SMALL_NMT)):
        monkeypatch.setattr(preset, "recipe", {**preset.recipe, "save_interval_updates": 7})
    return 7


@pytest.mark.parametrize(("data", "flags"), [("lm_data", LM), ("parallel_data", SMALL_NMT)], ids=["stream", "pairs"])
def test_a_recipe_goes_on_in_its_first_epoch(
    data: str,
    flags: tuple,
    updates_between_checkpoints: int,
    train: InProcess,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = request.getfixturevalue(data)
    flags = (*flags, "--max-epoch", 2, "--no-epoch-checkpoints", "--log-interval", updates_between_checkpoints)
    step = Trainer.train_step

    def interrupted(self: Trainer, samples: Any) -> Any:
        if self.get_num_updates() == 2 * updates_between_checkpoints + 2:
            raise KeyboardInterrupt
        return step(self, samples)

    monkeypatch.setattr(Trainer, "train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(folder, *flags, "--save-dir", tmp_path / "resumed")
    monkeypatch.setattr(Trainer, "train_step", step)
    assert [path.name for path in (tmp_path / "resumed").iterdir()] == ["checkpoint_last.pt"]
    text = train(folder, *flags, "--save-dir", tmp_path / "resumed")
    assert f"(epoch 1 @ {2 * updates_between_checkpoints} updates)" in text
    whole = train(folder, *flags, "--save-dir", tmp_path / "whole")
    assert logged(text, "loss") == logged(whole, "loss")[2:]
    assert_same(saved(tmp_path / "resumed"), saved(tmp_path / "whole"))


def test_saving_in_mid_epoch_changes_nothing_else(
    updates_between_checkpoints: int, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    flags = (*LM, "--max-epoch", 2, "--log-interval", 5)
    often = train(lm_data, *flags, "--save-dir", tmp_path / "often")
    assert logged(often, "num_updates")[:2] == [5, 10]
    line = r"Saved checkpoint \S*checkpoint_last.pt \(epoch \d+ @ \d*[1-9]\d* updates, score None\)"
    assert len(re.findall(line, often)) > 3
    by_epoch = train(lm_data, *flags, "--save-interval-updates", 0, "--save-dir", tmp_path / "by_epoch")
    assert len(logged(often, "valid_loss")) == len(logged(by_epoch, "valid_loss")) == 2
    names = {path.name for path in (tmp_path / "by_epoch").iterdir()}
    assert {path.name for path in (tmp_path / "often").iterdir()} == names
    assert {"checkpoint1.pt", "checkpoint_best.pt", "checkpoint_last.pt"} < names
    for name in names:
        assert_same(saved(tmp_path / "often", name), saved(tmp_path / "by_epoch", name))
    # Another number is fairseq's, and any with files to keep; that of a recipe which yields to an optimiser, too: see
    # the next test.
    for number, more in ((6, ()), (7, ("--keep-interval-updates", 9))):
        fairseqs = tmp_path / str(number)
        text = train(lm_data, *flags, "--save-interval-updates", number, *more, "--save-dir", fairseqs)
        assert len(logged(text, "valid_loss")) > 2
        assert (fairseqs / f"checkpoint_1_{number}.pt").is_file()


def test_a_recipe_that_yields_saves_as_fairseq_does(
    train: InProcess, parallel_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for commands with an optimiser, which had the flag before the preset had a recipe."""
    preset = ARCH_MODEL_REGISTRY["lstm_nmt_wt"]
    assert (preset.recipe["save_interval_updates"], preset.recipe["keep_interval_updates"]) == (1000, 1)
    monkeypatch.setattr(preset, "recipe", {**preset.recipe, "save_interval_updates": 4})
    sizes = ("--arch", "lstm_nmt_wt", *NMT_SIZES, "--decoder-out-embed-dim", 8, *LOGS, "--max-update", 9)
    by_recipe = (*sizes, "--max-tokens", 40)
    by_flags = (*by_recipe, "--optimizer", "adam", "--save-interval-updates", 4, "--keep-interval-updates", 1)
    for number, flags in enumerate((by_recipe, by_flags)):
        text = train(parallel_data, *flags, "--save-dir", tmp_path / str(number))
        names = {path.name for path in (tmp_path / str(number)).iterdir()}
        assert {"checkpoint_1_8.pt", "checkpoint_best.pt", "checkpoint_last.pt"} <= names
        assert "checkpoint_1_4.pt" not in names
        assert len(logged(text, "valid_loss")) == 3


TWO_PROCESSES = ("--distributed-world-size", 2)
OFTEN = ("--save-interval-updates", 5, "--keep-interval-updates", 1, "--no-epoch-checkpoints", "--max-epoch", 40)
KILLS = 4


def in_the_background() -> None:
    """Ignore SIGINT, like all that a script starts with `&`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def train_or_kill(data: Path, *flags: object, folder: Path, seconds: float | None) -> bool:
    """fairseq-train in a process of its own, killed by SIGKILL so many seconds after its first checkpoint, or left.

    Returns:
        whether it has ended by itself.
    """
    last = folder / "checkpoint_last.pt"
    before = last.stat().st_mtime_ns if last.exists() else None
    command = [sys.executable, "-m", "fairseq_cli.train", data, "--user-dir", USER_DIR, *flags, "--save-dir", folder]
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=in_the_background
    )
    if seconds is not None:
        deadline = time.monotonic() + 300
        while process.poll() is None and not (last.exists() and last.stat().st_mtime_ns != before):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(seconds)
        process.kill()
    text = process.communicate()[0].decode()  # until the processes that it has started are gone, too
    assert process.returncode in (0, -9), text
    return process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "flags"),
    [
        ("parallel_data", NMT),
        ("parallel_data", (*NMT, "--store-ema", "--ema-decay", 0.9, "--num-workers", 2)),
        ("parallel_data", (*NMT, *TWO_PROCESSES, "--max-epoch", 80)),  # which have seven updates
        ("lm_data", (*LM, "--store-ema", "--ema-decay", 0.9, "--num-workers", 2)),
        ("lm_data", (*LM, "--update-freq", 2)),
        ("lm_data", (*LM, *TWO_PROCESSES, "--batch-size", 3)),
    ],
    ids=["translation", "moving average, data workers", "two processes", "LM", "LM, chunks", "LM, two processes"],
)
def test_killed_at_any_moment(data: str, flags: tuple, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = request.getfixturevalue(data)
    moments = random.Random()  # unlike everything else here, another every time
    seconds = [moments.uniform(0, 1) for _ in range(KILLS)]
    ended = [
        train_or_kill(folder, *OFTEN, *flags, folder=tmp_path / "killed", seconds=each) for each in (*seconds, None)
    ]
    assert ended == [False] * KILLS + [True], (
        f"train longer: it has ended before it was killed, after {seconds} seconds"
    )
    assert train_or_kill(folder, *OFTEN, *flags, folder=tmp_path / "whole", seconds=None)
    assert_same(saved(tmp_path / "killed"), saved(tmp_path / "whole"), f"killed after {seconds} seconds: ")


@pytest.mark.parametrize("fp32", [(), ("--ema-fp32",)])
def test_an_average_begins_with_a_checkpoint_that_has_none(
    fp32: tuple, train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    """Of decay 1, so that it stays; fairseq ended in KeyError."""
    train(lm_data, *LM, "--max-update", 2, "--save-dir", tmp_path)
    average = ("--store-ema", "--ema-decay", 1, *fp32, "--max-update", 3, "--save-dir", tmp_path / "new")
    train(lm_data, *LM, "--finetune-from-model", tmp_path / "checkpoint_last.pt", *average)
    found, before = saved(tmp_path / "new"), saved(tmp_path)
    assert_same(found["ema"], before["model"])
    assert any(not torch.equal(weight, before["model"][name]) for name, weight in found["model"].items())
