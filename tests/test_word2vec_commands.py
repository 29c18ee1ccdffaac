"""word2vec's models through fairseq's commands: training, resuming, validating, and what reads the checkpoints."""

import random
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)
from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.tasks.word_pairs import WordPairsConfig, WordPairsTask

from .conftest import Cli, InProcess, MadeOnce, RunCommand
from .runs import saved
from .test_compat_commands import logged

TIED = ("--share-decoder-input-output-embed",)
SKIPGRAM = ("--arch", "word2vec_skipgram", "--decoder-embed-dim", 8, "--max-tokens", 40, "--subsampling", 0.05)
SKIPGRAM += ("--window", 2, "--lr", 0.05, "--cpu", "--log-format", "json", "--no-epoch-checkpoints")

MODELS: dict[str, tuple[Any, ...]] = {
    "skip-gram": SKIPGRAM,
    "tied": (*SKIPGRAM, *TIED, "--sharing-method", "distance"),
    "full": (*SKIPGRAM, *TIED, "--word2vec-output", "full"),
    "tree": (*SKIPGRAM, "--word2vec-output", "tree"),
    "cbow": (*SKIPGRAM, *TIED, "--arch", "word2vec_cbow"),
}


@pytest.fixture(scope="module")
def two_topics(run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose sentences have the words of one of two topics, and words of both between them."""
    folder, rng = tmp_path_factory.mktemp("topics"), random.Random(1)
    lines = [" ".join(rng.choices(rng.choice(("abcde", "vwxyz")) + "mn", k=12)) for _ in range(130)]
    (folder / "text").write_text("\n".join(lines) + "\n")
    files = ("--trainpref", folder / "text", "--validpref", folder / "text", "--destdir", folder)
    run_command("preprocess", "--only-source", "--padding-factor", 1, *files)
    return folder


@pytest.mark.parametrize(
    "name", ["skip-gram", *(pytest.param(name, marks=pytest.mark.slow) for name in ("cbow", "tied", "full", "tree"))]
)
def test_words_of_one_topic_come_to_be_alike(name: str, two_topics: Path, train: InProcess, tmp_path: Path) -> None:
    flags = ("--max-epoch", 3, "--total-num-update", 130, "--subsampling", 0, "--save-interval", 3)
    flags += ("--save-dir", tmp_path)
    text = train(two_topics, *MODELS[name], *flags)
    assert ("valid_ppl" in text) == (name in ("full", "tree"))
    losses = logged(text, "valid_loss")
    assert losses[-1] < losses[0]
    table = saved(tmp_path)["model"]["decoder.embed_tokens.weight"]
    words = [line[0] for line in (two_topics / "dict.txt").read_text().splitlines()]
    rows = {word: row / row.norm() for word, row in zip(words, table[4:], strict=True)}
    within = [rows[first] @ rows[second] for topic in ("abcde", "vwxyz") for first, second in pairwise(topic)]
    across = [rows[first] @ rows[second] for first, second in zip("abcde", "vwxyz", strict=True)]
    assert min(within) > max(across)


@pytest.mark.parametrize("flags", [(), ("--clip-norm", 1e-9), ("--update-freq", 2)])
def test_what_changes_gradients_is_followed(flags: tuple[Any, ...], two_topics: Path, train: InProcess) -> None:
    """Otherwise skip-gram learns its batches without any, and the text is of no use to a gradient of norm 1e-9."""
    given = ("--no-save", "--max-update", 40, "--subsampling", 0, "--validate-interval-updates", 2)
    text = train(two_topics, *MODELS["skip-gram"], *given, *flags)
    norms, losses = logged(text, "train_gnorm"), logged(text, "valid_loss")
    assert all(norm > 0 for norm in norms) if flags else set(norms) == {0}
    assert (losses[-1] == pytest.approx(losses[0], rel=1e-3)) == ("--clip-norm" in flags)


def test_a_batch_without_pairs_is_no_part_of_a_training(
    run_command: RunCommand, train: InProcess, tmp_path: Path
) -> None:
    """fairseq trains and validates a dummy batch in its place, and logs it."""
    text = [" ".join("abcdefgh"[number % 8 :]) if number < 40 else "a" for number in range(120)]
    (tmp_path / "text").write_text("\n".join(text) + "\n")
    files = ("--trainpref", tmp_path / "text", "--validpref", tmp_path / "text", "--destdir", tmp_path)
    run_command("preprocess", "--only-source", "--padding-factor", 1, *files)
    command = (tmp_path, *MODELS["skip-gram"], "--subsampling", 0, "--lr-scheduler", "fixed", "--max-epoch", 1)
    log = train(*command, "--save-dir", tmp_path, "--log-interval", 1, "--log-format", "json")
    assert 5 < logged(log, "train_num_updates")[0] < 9  # three of four batches have sentences of one word alone
    assert min(logged(log, "loss")) > 0
    path = ("--path", tmp_path / "checkpoint_last.pt", "--max-tokens", 40, "--cpu")
    validated = run_command("validate", tmp_path, *path, "--log-format", "json")
    assert logged(validated.stdout, "valid_loss") == logged(log, "valid_loss")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["skip-gram", "tree"])
def test_two_processes_train_like_one_with_twice_the_batches(
    name: str, two_topics: Path, run_command: RunCommand, train: InProcess
) -> None:
    command = (two_topics, *MODELS[name], "--no-save", "--max-update", 40, "--subsampling", 0, "--num-workers", 0)
    two = run_command("train", *command, "--distributed-world-size", 2, fresh=True).stdout
    found, expected = logged(two, "valid_loss"), logged(train(*command, "--update-freq", 2), "valid_loss")
    assert found == pytest.approx(expected, rel=0.05 if name == "skip-gram" else 1e-4)  # of its noise


def test_a_batch_of_many_pairs_does_not_overshoot_at_the_root(
    two_topics: Path, train: InProcess, tmp_path: Path
) -> None:
    """All pairs have a part in the root's gradient, whose sum over a batch leads out of all bounds if it is not cut."""
    flags = (*MODELS["tree"], "--max-tokens", 20_000, "--subsampling", 0, "--window", 5, "--lr", 0.1, "--max-epoch", 12)
    flags += ("--lr-scheduler", "fixed", "--no-save")
    losses = logged(train(two_topics, *flags), "valid_loss")
    assert losses[-1] < losses[0]
    with pytest.raises(FloatingPointError, match="Nan/Inf"):
        train(two_topics, *flags, "--clip-row-norm", 0, "--save-dir", tmp_path)  # where fairseq leaves crash.pt


@pytest.fixture
def trained(run_command: RunCommand, lm_data: Path, made_once: MadeOnce) -> tuple[Path, str]:
    """A checkpoint, and what training printed."""
    flags = ("--max-epoch", 2, "--total-num-update", 44, "--save-dir")

    def make(folder: Path) -> str:
        return run_command("train", lm_data, *MODELS["skip-gram"], *flags, folder).stdout

    folder, log = made_once("word2vec", make)
    return folder / "checkpoint_last.pt", log


def test_validation_prints_the_loss_of_the_training(
    trained: tuple[Path, str], run_command: RunCommand, lm_data: Path, tmp_path: Path
) -> None:
    """Without the text of the training, too; negative sampling is of no probability."""
    path, log = trained
    for file in ("dict.txt", "valid.bin", "valid.idx"):
        (tmp_path / file).write_bytes((lm_data / file).read_bytes())
    flags = ("--path", path, "--max-tokens", 40, "--cpu", "--task", "word_pairs", "--model-overrides")
    command = run_command("validate", tmp_path, *flags, str({"data": str(tmp_path)}))
    (found,) = re.findall(r"valid on 'valid' subset \| loss ([\d.]+)", command.stdout + command.stderr)
    assert float(found) == logged(log, "valid_loss")[-1]
    assert "ppl" not in command.stdout + command.stderr + log


@pytest.mark.parametrize("command", ["eval-lm", "generate"])
def test_commands_that_need_text_are_refused(
    command: str, trained: tuple[Path, str], run_command: RunCommand, lm_data: Path
) -> None:
    flags = ("--path", trained[0], "--max-tokens", 40, "--cpu", "--gen-subset", "valid", "--task", "word_pairs")
    refused = run_command(command, lm_data, *flags, check=False)
    assert refused.returncode == 2
    needs = "--task: needs a task whose models generate or score text; got word_pairs. Use fairseq-validate, or"
    assert needs in refused.stderr


def test_the_tables_are_read_as_those_of_language_models(trained: tuple[Path, str], lm_data: Path, cli: Cli) -> None:
    printed = cli("norms", trained[0]).out
    for name in ("decoder.embed_tokens.weight", "decoder.output.weight"):
        assert name in printed
    err = cli("updates", lm_data, "--checkpoint", trained[0], status=2).err
    assert f"--checkpoint: needs a language model; got word2vec_skipgram in {trained[0]}. Use another" in err


def test_words_that_training_left_out_have_no_vectors(
    trained: tuple[Path, str], lm_data: Path, tmp_path: Path, cli: Cli
) -> None:
    state = torch.load(trained[0], weights_only=False)
    state["cfg"]["task"]["min_count"] = fewest = 60
    torch.save(state, tmp_path / "x.pt")
    lines = [line.split() for line in (lm_data / "dict.txt").read_text().splitlines()]
    frequent = [word for word, count in lines if int(count) >= fewest]
    assert 4 <= len(frequent) < len(lines)
    words = f"words, 8 wide, without {len(lines) + 2 - len(frequent)} that training left out"  # </s> and <unk> too
    table = (f"{tmp_path}/x.pt:in", "--dict", str(lm_data / "dict.txt"))
    assert f": {len(frequent)} {words}" in cli("vectors", *table, "--output", tmp_path / "x.vec").out
    assert [line.split()[0] for line in (tmp_path / "x.vec").read_text().splitlines()[1:]] == frequent
    rare = min(lines, key=lambda line: int(line[1]))[0]
    (tmp_path / "set.txt").write_text(f"{frequent[0]} {rare} 1\n{frequent[0]} {frequent[1]} 2\n")
    printed = cli("similarity", *table, "--sets", tmp_path / "set.txt").out.splitlines()
    assert printed[0].endswith(words)
    assert printed[-1].split()[:3] == ["set", "1", "2"]
    assert f"got '{rare}'" in cli("neighbours", *table, "--words", rare, status=2).err


def test_a_checkpoint_is_a_model_without_a_trainer(trained: tuple[Path, str], lm_data: Path) -> None:
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(trained[0])])
    assert task.word_counts.sum() == model.output.head.counts.sum()
    words = torch.arange(4, 8)
    assert model(words).shape == (4, len(task.source_dictionary))
    with pytest.raises(ValueError, match="got negative"):
        model.log_prob(words, src_tokens=words, centres=torch.arange(4))
    assert model(words, torch.arange(4), words, LossOptions(reduce=False)).loss.shape == (4,)


def test_the_criterion_refuses_other_models(train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    flags = ("--arch", "zaremba_lm_small", "--criterion", "word_pairs", "--max-update", 1, "--cpu")
    with pytest.raises(ValueError, match="--task word_pairs: needs a model of word2vec's family; got zaremba_lm_small"):
        train(lm_data, *flags, "--task", "word_pairs", "--max-tokens", 40, "--save-dir", tmp_path)
    with pytest.raises(ValueError, match="--criterion word_pairs: needs --task word_pairs .* got zaremba_lm_small"):
        train(lm_data, *flags, "--batch-size", 2, "--save-dir", tmp_path)


def test_words_of_all_parts_of_a_text_are_counted(two_topics: Path, tmp_path: Path) -> None:
    """train, train1 and so on, which fairseq trains on as one."""
    for suffix in ("bin", "idx"):
        for name in ("train", "train1"):
            shutil.copy(two_topics / f"train.{suffix}", tmp_path / f"{name}.{suffix}")
    shutil.copy(two_topics / "dict.txt", tmp_path)
    options: Any = {"min_count": 1, "train_subset": "train", "dataset_impl": "mmap"}
    configs = (WordPairsConfig(data=str(folder), **options) for folder in (two_topics, tmp_path))
    one, two = (WordPairsTask.setup_task(config).word_counts for config in configs)
    assert one.any()
    assert two.tolist() == (2 * one).tolist()
