"""Feed-forward language models through fairseq's commands: training, resume, evaluation, decoding, scoring."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import data_utils

from fairseq_tiedemb.models.feedforward_lm import FeedForwardLM

from .conftest import Cli, MadeOnce
from .runs import assert_same_weights, evaluated, model_state, printed, tokens
from .test_compat_commands import logged, noise
from .test_language_model_commands import LOGS, STREAM, Evaluate, InProcess, RunCommand

SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 20, "--tokens-per-sample", 5, "--batch-size", 6)
TRAINING = (*SIZES, *LOGS, "--lr", 0.02, "--max-update", 60)
PRESET = ("--arch", "feedforward_lm_wt", *TRAINING)
SENTENCES = (*STREAM, "--sample-break-mode", "eos")


@pytest.fixture(scope="module")
def language_model(run_command: RunCommand, lm_data: Path, made_once: MadeOnce) -> tuple[Path, Any]:
    """Checkpoints of a tied model that has begun to learn, and the command that trained it."""
    return made_once("feedforward_lm_wt", lambda folder: run_command("train", lm_data, *PRESET, "--save-dir", folder))


@pytest.fixture
def path(language_model: tuple[Path, Any]) -> tuple[str, Path]:
    """`--path` and the last checkpoint."""
    return "--path", language_model[0] / "checkpoint_last.pt"


@pytest.fixture
def model(path: tuple[str, Path], lm_data: Path) -> FeedForwardLM:
    """The trained model, in evaluation."""
    return FeedForwardLM.from_pretrained(str(path[1].parent), path[1].name, str(lm_data)).models[0].double()


def test_a_preset_is_the_whole_command(language_model: tuple[Path, Any], lm_data: Path) -> None:
    folder, command = language_model
    assert (
        "feedforward_lm_wt: shares input = output (weight tying) by method plain, with P and its bias" in command.stdout
    )
    assert noise(command.stdout + command.stderr) == []
    perplexities = logged(command.stdout, "valid_ppl")
    assert perplexities[-1] < perplexities[0] < 16  # words of the dictionary
    assert logged(command.stdout, "train_lr")[-1] == 0
    assert (folder / "checkpoint_best.pt").is_file()


@pytest.mark.parametrize(
    "flags",
    [
        "--arch bengio_lm",
        "--arch feedforward_lm --deep-output relu --activation-fn relu --skip-connections",
        "--arch feedforward_lm_wt --projection-regularization 0.1 --dropout 0.1 --sharing-method cosine",
    ],
)
def test_every_form_trains(flags: str, train: InProcess, lm_data: Path) -> None:
    text = train(lm_data, *flags.split(), *TRAINING, "--batch-size", 12, "--max-update", 26, "--no-save")
    perplexities = logged(text, "train_ppl")
    assert perplexities[-1] < perplexities[0]
    assert ("train_penalty" in text) == ("--projection-regularization" in flags)


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 5])
def test_two_processes_are_one_with_twice_the_rows_and_resume(
    order: int, run_command: RunCommand, lm_data: Path, tmp_path: Path
) -> None:
    flags = (*PRESET, "--ngram-order", order, "--total-num-update", 60, "--no-epoch-checkpoints", "--save-dir")
    several = ("--distributed-world-size", 2, "--batch-size", 3)
    run_command("train", lm_data, *flags, tmp_path / "one")
    run_command("train", lm_data, *flags, tmp_path / "parts", *several, "--max-update", 37, fresh=True)
    run_command("train", lm_data, *flags, tmp_path / "parts", *several, fresh=True)
    run_command("train", lm_data, *flags, tmp_path / "two", *several, fresh=True)
    assert_same_weights(tmp_path / "parts", tmp_path / "two")
    one, two = (model_state(tmp_path / name) for name in ("one", "two"))
    torch.testing.assert_close(two, one, rtol=1e-3, atol=1e-4)


def whole_stream(model: FeedForwardLM, data: Path) -> float:
    """Perplexity of the test text, its words one after the other from an end of sentence."""
    text = torch.cat(list(data_utils.load_indexed_dataset(f"{data}/test"))).long().unsqueeze(0)
    previous = torch.cat((torch.tensor([[2]]), text[:, :-1]), 1)
    return (model(previous, target=text).loss / text.numel()).exp().item()


def test_eval_lm_predicts_every_token_once_from_its_context(
    run_command: RunCommand, evaluate: Evaluate, path: tuple[str, Path], model: FeedForwardLM, lm_data: Path
) -> None:
    command = run_command("eval-lm", lm_data, *STREAM, *path, "--tokens-per-sample", 5)
    assert noise(command.stdout + command.stderr) == []
    expected = tokens(lm_data, "test"), pytest.approx(whole_stream(model, lm_data), abs=0.011)
    assert evaluated(command.stdout + command.stderr) == expected
    assert evaluate(lm_data, *STREAM, *path, "--tokens-per-sample", 1024) == expected
    for batch_size, chunk in ((3, 1), (7, 35)):
        count, perplexity = evaluate(lm_data, *STREAM, *path, "--batch-size", batch_size, "--tokens-per-sample", chunk)
        assert count == expected[0]
        # The first n - 2 words of each row but the first lack some of what came before them.
        assert perplexity == pytest.approx(whole_stream(model, lm_data), rel=0.02)


def test_sentences_are_evaluated_and_scored_one_by_one(
    evaluate: Evaluate, path: tuple[str, Path], model: FeedForwardLM, lm_data: Path, tmp_path: Path, cli: Cli
) -> None:
    expected = []
    for sentence in data_utils.load_indexed_dataset(f"{lm_data}/test"):
        target = sentence.long().unsqueeze(0)
        expected.append(-model(target.roll(1, 1), target=target).loss.item())  # rolled: the end comes first
    perplexity = pytest.approx(torch.tensor(-sum(expected) / tokens(lm_data, "test")).exp().item(), abs=0.011)
    for batch_size in (1, 7):
        found = evaluate(lm_data, *SENTENCES, *path, "--batch-size", batch_size)
        assert found == (tokens(lm_data, "test"), perplexity)
    words = [line.split()[0] for line in (lm_data / "dict.txt").read_text().splitlines()]
    sentences = data_utils.load_indexed_dataset(f"{lm_data}/test")
    lines = [" ".join(words[index - 4] for index in sentence[:-1].tolist()) for sentence in sentences]
    (tmp_path / "text").write_text("".join(line + "\n" for line in lines))
    out = cli("score", path[1], tmp_path / "text", "--data", lm_data).out
    scores = [float(line.split("\t")[0]) for line in out.splitlines()]
    assert scores == pytest.approx(expected, rel=1e-5)


def test_generate_goes_on_from_a_prefix(generate: InProcess, path: tuple[str, Path], lm_data: Path) -> None:
    flags = (*SENTENCES, *path, "--gen-subset", "valid", "--beam", 3, "--prefix-size", 2, "--max-len-b", 6)
    found = [printed(generate(lm_data, *flags, "--batch-size", size), "H") for size in (1, 7)]
    assert found[0].keys() == found[1].keys()
    for number, line in found[0].items():
        score, words = line.split("\t")
        other_score, other_words = found[1][number].split("\t")
        assert (other_words, float(other_score)) == (words, pytest.approx(float(score), abs=1e-5))


def test_another_function_of_the_same_weights_is_refused(
    train: InProcess, path: tuple[str, Path], lm_data: Path
) -> None:
    for flags, found in ((("--activation-fn", "relu"), "relu"), (("--deep-output", "tanh"), "tanh")):
        with pytest.raises(ValueError, match=f"{flags[0]}: needs .* got {found}"):
            train(lm_data, *PRESET, *flags, "--restore-file", path[1], "--max-update", 70, "--no-save")
