"""A text in which ``<pad>`` is a word: one perplexity by every command; and what is no perplexity, refused."""

import math
import re
from pathlib import Path

import pytest
import torch
from fairseq.sequence_scorer import SequenceScorer

from .conftest import Cli, Evaluate, InProcess, MadeOnce, run
from .models.common import dictionary
from .test_compat_commands import shown
from .untrained import write_checkpoint

# At the ends of rows and of the text too. 33 of 71 tokens.
TEXT = "<pad> a <pad> <pad>\nb\n<pad> c <pad> <pad> e\n" * 5 + "f <pad> g <pad> <pad>\n"
MODEL = ("--arch", "zaremba_lm_small_wt", "--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--dropout", 0)
BATCHES = ("--batch-size", 4, "--tokens-per-sample", 5, "--num-workers", 0)


@pytest.fixture(scope="module")
def folder(lm_data: Path, made_once: MadeOnce) -> Path:
    """`model/checkpoint_last.pt`, `text`, and `data`, its text as splits train and test."""

    def make(folder: Path) -> None:
        (folder / "text").write_text(TEXT)
        splits = ("--trainpref", folder / "text", "--testpref", folder / "text", "--srcdict", lm_data / "dict.txt")
        run("preprocess", "--only-source", *splits, "--destdir", folder / "data")
        (folder / "model").mkdir()
        write_checkpoint(folder / "model/checkpoint_last.pt", lm_data, *MODEL)

    return made_once("padding", make)[0]


@pytest.fixture
def evaluate(folder: Path, evaluate: Evaluate) -> Evaluate:
    """`evaluate` of conftest.py, of this text."""

    def of_this_text(*flags: object, path: Path = folder / "model/checkpoint_last.pt") -> tuple[int, float]:
        return evaluate(folder / "data", "--path", path, "--task", "contiguous_lm", *flags)

    return of_this_text


def test_one_perplexity(folder: Path, evaluate: Evaluate, cli: Cli) -> None:
    checkpoint, data = folder / "model/checkpoint_last.pt", folder / "data"
    err = cli("score", checkpoint, folder / "text", "--data", data, "--stream").err
    [(count, perplexity)] = re.findall(r"(\d+) tokens .* perplexity ([\d.]+)", err)
    expected = (len(TEXT.split()) + TEXT.count("\n"), pytest.approx(float(perplexity), abs=0.011))
    assert int(count) == expected[0]
    for length in (1, 3, 200):
        assert evaluate("--tokens-per-sample", length) == expected, length
    command = run(
        *("validate", data, "--path", checkpoint, "--task", "contiguous_lm", "--batch-size", 1),
        *("--valid-subset", "test", "--num-workers", 0),
    )
    assert shown(command.stdout, "ppl")[-1] == expected[1]


def test_one_perplexity_of_rows(evaluate: Evaluate) -> None:
    """Some of which are shorter, and end in padding that is none of the text."""
    found = [evaluate("--batch-size", 3, "--tokens-per-sample", length) for length in (1, 5, 200)]
    assert found[1:] == found[:1] * 2


def test_one_perplexity_of_sentences(folder: Path, evaluate: Evaluate, cli: Cli) -> None:
    checkpoint, data = folder / "model/checkpoint_last.pt", folder / "data"
    perplexity = float(cli("score", checkpoint, folder / "text", "--data", data).err.split()[-1])
    for rows in (1, 5):
        found = evaluate("--sample-break-mode", "eos", "--batch-size", rows)[1]
        assert found == pytest.approx(perplexity, abs=0.011)


def diverged(folder: Path, to: Path, *, at: int, value: float) -> Path:
    """The checkpoint with an output bias of this value."""
    state = torch.load(folder / "model/checkpoint_last.pt", weights_only=False)
    [entry] = [each for name, each in state["model"].items() if name.endswith("output.bias")]
    entry[at] = value
    torch.save(state, to)
    return to


def test_validation_refuses_what_is_no_perplexity(folder: Path, tmp_path: Path) -> None:
    path = diverged(folder, tmp_path / "model.pt", at=5, value=math.nan)
    flags = ("--path", path, "--task", "contiguous_lm", "--batch-size", 4, "--valid-subset", "test")
    command = run("validate", folder / "data", *flags, "--num-workers", 0, check=False)
    assert command.returncode == 2
    assert "validation: needs a loss that is a number; got nan. Use a checkpoint from before" in command.stderr


def test_fairseqs_criterions_are_refused(folder: Path, train: InProcess) -> None:
    """They would count the word, but not predict it."""
    flags = (*MODEL, *BATCHES, "--max-update", 1, "--no-save", "--disable-validation", "--criterion")
    message = "--criterion: needs tied_cross_entropy for .* <pad>.*; got cross_entropy, and 33 of it in split train"
    with pytest.raises(ValueError, match=message):
        train(folder / "data", *flags, "cross_entropy")
    train(folder / "data", *flags, "tied_cross_entropy")


BOS = ("--sample-break-mode", "eos", "--add-bos-token")


@pytest.mark.parametrize(
    ("word", "bias", "flags", "message"),
    [
        ("c", math.nan, (), "got nan for '<pad>'. Use a checkpoint from before the training diverged, or no --fp16"),
        ("c", -math.inf, (), "got 0 for 'c'. Use a text without 'c'.$"),
        ("<s>", -math.inf, BOS, "got 0 for '<s>'. Use a text without '<s>', or no --add-bos-token"),
    ],
)
def test_what_is_no_perplexity(
    word: str,
    bias: float,
    flags: tuple[str, ...],
    message: str,
    folder: Path,
    lm_data: Path,
    evaluate: Evaluate,
    tmp_path: Path,
) -> None:
    """fairseq leaves words of probability 0 out of it, after an error of logging, and prints one of nan."""
    words = ["<s>", "<pad>", "</s>", "<unk>", *(line.split()[0] for line in (lm_data / "dict.txt").open())]
    path = diverged(folder, tmp_path / "model.pt", at=words.index(word), value=bias)
    with pytest.raises(ValueError, match=f"--path: needs a model that gives each word of the text a prob.*; {message}"):
        evaluate(*flags, path=path)


@pytest.mark.parametrize("starts", [None, [0, 2]])
def test_scores_stand_beside_their_words(starts: list[int] | None) -> None:
    """With the words of a ``--context-window`` before them in a row, too."""
    target = torch.tensor([[4, 1, 5, 1, 1], [6, 7, 1, 8, 1]])  # the first row has a word <pad> at its end
    lengths, log_p = torch.tensor([4, 4]), torch.randn(2, 5, 9).log_softmax(-1)

    class Model(torch.nn.Module):
        def forward(self, **_: object) -> tuple[torch.Tensor, None]:
            return log_p, None

        def get_normalized_probs(self, net_output: tuple, **_: object) -> torch.Tensor:
            return net_output[0]

    sample = {"net_input": {"src_tokens": target, "src_lengths": lengths}, "target": target, "ntokens": 8}
    if starts is not None:
        sample["start_indices"] = starts
    found = SequenceScorer(dictionary(9)).generate([Model()], sample)
    for number, [row] in enumerate(found):
        words = target[number, (starts or [0, 0])[number] : 4]
        assert torch.equal(row["tokens"], words)
        expected = [log_p[number, at, word].item() for at, word in enumerate(target[number].tolist())]
        assert row["positional_scores"].tolist() == expected[4 - len(words) : 4]
        assert row["score"] == pytest.approx(sum(expected[4 - len(words) : 4]) / len(words))
