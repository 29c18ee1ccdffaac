"""Output layers through the commands: training, resume, scoring, decoding, ours, and refusals."""

import functools
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.data import data_utils

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM
from fairseq_tiedemb.outputs import ClassBased, ShortList

from .conftest import SPLIT_SIZES, Cli, Evaluate, InProcess, MadeOnce, RunCommand
from .runs import assert_same, model_state, printed, saved, tokens
from .test_compat_commands import logged, noise, shown

SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--tokens-per-sample", 5, "--batch-size", 6)
FLAGS = (*SIZES, "--log-format", "json", "--num-workers", 0)
TIED, UNTIED = ("--arch", "zaremba_lm_small_wt"), ("--arch", "zaremba_lm_small")
# By their frequencies at the start, nothing would be left to learn of these letters.
ZERO = ("--output-bias-init", "zero")
LAYERS = {
    "classes": (*TIED, "--sharing-method", "cosine", "--output-layer", "classes", "--classes", 4),
    "class-file": (*UNTIED, "--output-layer", "classes", "--class-file", "CLASSES"),
    "short-list": (*UNTIED, "--output-layer", "short-list", "--short-list", 6),
    "tied-short-list": (*TIED, "--output-layer", "short-list", "--short-list", 6),
    "nce": (*TIED, "--output-layer", "nce", "--noise-samples", 20, *ZERO),
    "sampled": (*TIED, "--output-layer", "sampled", "--noise-samples", 5, "--own-noise", *ZERO),
    "mixture": (*TIED, "--output-layer", "mixture", "--mixtures", 2, "--sharing-method", "scaled-words", *ZERO),
    "joint": (*TIED, "--output-layer", "joint", "--joint-dim", 12, *ZERO),
    "tree": (*UNTIED, "--output-layer", "tree", *ZERO),
    "class-tree": (*UNTIED, "--output-layer", "tree", "--tree", "classes", "--class-file", "CLASSES", *ZERO),
}
# What differs in the table, in the noise or in where the classes come from is rarer.
RARE = ("class-file", "tied-short-list", "sampled", "joint", "class-tree")
every_layer = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in RARE)) for name in LAYERS]
)
SURROGATES = ("nce", "sampled")
CLASS_FILE = "a 0\nb 1\nc 0\nd 1\ne 0\nf 2\nzebra 3\n"


class Trained:
    """A model of an output layer: its checkpoints, what training printed, and a data folder without its text."""

    def __init__(self, folder: Path, flags: tuple, command: Any):
        self.folder, self.flags, self.command = folder, flags, command
        self.data = folder / "data"
        self.checkpoint = folder / "checkpoint_last.pt"
        self.path = ("--path", self.checkpoint)

    @functools.cached_property
    def hub(self) -> Any:
        """The last checkpoint's model and task."""
        return TiedLSTMLM.from_pretrained(str(self.folder), self.checkpoint.name, str(self.data))

    def log_prob(self, sentence: torch.Tensor) -> torch.Tensor:
        """Logarithms of the probabilities of all words at each place of a sentence, from its scores, (T, V)."""
        previous, model = torch.cat((torch.tensor([2]), sentence[:-1].long())).unsqueeze(0), self.hub.models[0]
        with torch.no_grad():
            return model.get_normalized_probs(model(previous), log_probs=True)[0].double()


def flags_of(name: str, classes: Path) -> tuple:
    return tuple(classes if flag == "CLASSES" else flag for flag in LAYERS[name])


@pytest.fixture
def trained(run_command: RunCommand, lm_data: Path, made_once: MadeOnce) -> Callable[[str], Trained]:
    """`trained(name)` is a model that has begun to learn, whose file of classes is gone."""

    def trained(name: str) -> Trained:
        def make(folder: Path) -> tuple[tuple, Any]:
            flags = flags_of(name, folder / "classes")
            (folder / "classes").write_text(CLASS_FILE)
            command = run_command("train", lm_data, *flags, *FLAGS, "--max-epoch", 2, "--save-dir", folder)
            (folder / "classes").unlink()
            shutil.copytree(lm_data, folder / "data", ignore=shutil.ignore_patterns("train.*"))
            return flags, command

        folder, (flags, command) = made_once(f"output-layer-{name}", make)
        return Trained(folder, flags, command)

    return trained


@every_layer
def test_training(name: str, trained: Callable[[str], Trained]) -> None:
    text = trained(name).command.stdout
    assert noise(text) == []
    assert ("train_ppl" in text) == (name not in SURROGATES)
    assert ("valid_ppl_as_printed" in text) == ("short-list" in name)
    if ZERO[0] in LAYERS[name]:
        first, second = logged(text, "valid_ppl")
        assert second < first
    else:
        assert max(logged(text, "valid_ppl")) < 12  # words of the text, which come at random
    if name == "classes":
        assert "--output-layer classes: 4 classes of" in text
    if name == "class-file":
        found = re.search(r"--class-file: 3 classes for 6 of (\d+) words in \S+; (\d+) that it lacks are a class", text)
        assert int(found[2]) == int(found[1]) - 6 - 2  # <s> and <pad>
    if name == "short-list":
        assert re.search(r"shares nothing .* output 119, rest", text)  # (6 + 1) rows of 16, and their biases
    if name == "tree":  # 15 nodes of 16 words
        assert "shares nothing by method plain" in text
        assert "input 256, output layer 255, rest" in text


@every_layer
def test_evaluation(
    name: str, trained: Callable[[str], Trained], evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every token once, by exact probabilities that sum to 1, without the text of the training."""
    model, nats = trained(name), 0.0
    for sentence in data_utils.load_indexed_dataset(f"{model.data}/valid"):
        log_p = model.log_prob(sentence)
        # The logarithms are in float32.
        torch.testing.assert_close(log_p.exp().sum(1), torch.ones(len(sentence)).double(), rtol=0, atol=1e-5)
        if name in ("nce", "tree"):
            assert log_p[:, :2].eq(-torch.inf).all()  # <s> and <pad>
        nats -= log_p.gather(1, sentence.long().unsqueeze(1)).sum().item()

    def scores(*_: Any) -> None:
        raise AssertionError("scores of all words")

    for head in (ClassBased, ShortList, SharedEmbedding):
        if "class" in name or "list" in name:
            monkeypatch.setattr(head, "scores", scores)
    valid = (model.data, *model.path, "--gen-subset", "valid", "--task")
    count = tokens(model.data, "valid")
    expected = (count, pytest.approx(math.exp(nats / count), abs=0.01))
    sentences = ("--sample-break-mode", "eos", "--batch-size")
    assert evaluate(*valid, "contiguous_lm", *sentences, 7) == expected
    assert evaluate(*valid, "language_modeling", *sentences, 3, "--softmax-batch", 7) == expected
    validated = logged(model.command.stdout, "valid_ppl")[-1]
    assert evaluate(*valid, "contiguous_lm", "--batch-size", 6) == (count, pytest.approx(validated, abs=0.011))


@every_layer
def test_decoding(name: str, trained: Callable[[str], Trained], generate: InProcess) -> None:
    model = trained(name)
    flags = ("--task", "contiguous_lm", "--sample-break-mode", "eos", *model.path, "--gen-subset", "valid")
    text = generate(model.data, *flags, "--batch-size", 7, "--beam", 2, "--prefix-size", 2, "--max-len-b", 6)
    found = printed(text, "H")
    assert sorted(found) == list(range(SPLIT_SIZES["valid"]))
    assert not {"<s>", "<pad>"} & set(" ".join(found.values()).split())
    for number in (0, 1):
        words = model.hub.task.source_dictionary.encode_line(found[number].split("\t")[1], add_if_not_exist=False)
        scores = [float(value) for value in printed(text, "P")[number].split()]
        log_p = model.log_prob(words).gather(1, words.long().unsqueeze(1)).squeeze(1)[-len(scores) :]
        # fairseq's beam search begins with the prefix, which it scores too
        assert scores == pytest.approx([value / math.log(2) for value in log_p.tolist()], abs=1e-3)


def test_fresh_processes(run_command: RunCommand, trained: Callable[[str], Trained]) -> None:
    model = trained("nce")
    validated = run_command("validate", model.data, "--task", "contiguous_lm", *model.path, "--batch-size", 6)
    assert shown(validated.stdout, "ppl")[-1] == logged(model.command.stdout, "valid_ppl")[-1]
    evaluated = run_command("eval-lm", model.data, "--task", "contiguous_lm", *model.path)
    assert "Perplexity" in evaluated.stdout + evaluated.stderr
    assert noise(evaluated.stdout + evaluated.stderr) == []


@every_layer
def test_score(name: str, trained: Callable[[str], Trained], tmp_path: Path, cli: Cli) -> None:
    model = trained(name)
    sentences = ["a b c", "j j", "e zebra"]
    (tmp_path / "text").write_text("\n".join(sentences) + "\n")
    out, err = cli("score", model.checkpoint, tmp_path / "text", "--data", model.data)
    total, outside, share = 0.0, 0, 0.0
    unlisted = shares_outside(model_state(model.folder)) if "short-list" in name else {}
    for sentence, line in zip(sentences, out.splitlines(), strict=True):
        words = model.hub.task.source_dictionary.encode_line(sentence, add_if_not_exist=False).long()
        value = model.log_prob(words).gather(1, words.unsqueeze(1)).sum().item()
        assert float(line.split("\t")[0]) == pytest.approx(value, rel=1e-5)
        total += value
        for word in unlisted.keys() & set(words.tolist()):
            count = words.tolist().count(word)
            outside += count
            share += count * math.log(unlisted[word])
    line = f"3 sentences, 10 tokens (1 unknown), perplexity {math.exp(-total / 10):.2f}"
    if "short-list" in name:
        line += f"; {10 * outside:.2f}% of the tokens outside"
        line += f"; perplexity {math.exp(-(total - share) / 10):.2f} as printed"
    assert err.splitlines()[-1] == line


def shares_outside(state: dict[str, torch.Tensor]) -> dict[int, float]:
    """Each word's share of the counts of the words outside the short list."""
    listed = state["decoder.output.over.listed"].tolist()
    counts = {word: max(count, 1) for word, count in enumerate(state["decoder.output.over.counts"].tolist())}
    counts = {word: count for word, count in counts.items() if word > 1 and (word not in listed or word == 3)}
    return {word: count / sum(counts.values()) for word, count in counts.items()}


@every_layer
def test_other_commands(name: str, trained: Callable[[str], Trained], tmp_path: Path, cli: Cli) -> None:
    model = trained(name)
    several = [str(model.folder / f"checkpoint{epoch}.pt") for epoch in (1, 2)]
    cli("average", "--inputs", *several, "--output", tmp_path / "mean.pt")
    (tmp_path / "text").write_text("a b c\n")
    cli("score", tmp_path / "mean.pt", tmp_path / "text", "--data", model.data)
    dictionary = ["--dictionary", str(model.data / "dict.txt")]
    out = cli("norms", model.checkpoint, *dictionary, "--parameters").out
    assert ("decoder.output.nodes" in out) == ("tree" in name)
    if name == "short-list":  # every row of which is a word's
        norms = model_state(model.folder)["decoder.output.weight"].double().norm(dim=1)
        assert re.search(r"^rows +\d+ +7$", out, re.M)
        assert re.search(rf"^mean +\S+ +{norms.mean():.4g}$", out, re.M)
        # two of its rows, </s> and <unk>, have no count in dict.txt
        listed = model_state(model.folder)["decoder.output.over.listed"].tolist()
        of_words = norms[[place for place, word in enumerate(listed) if word > 3]]
        assert re.search(rf"^1-10 +\S+ +{of_words.mean():.4g}$", out, re.M)
    err = cli("export", model.checkpoint, tmp_path / "stock.pt", status=2).err
    assert "CHECKPOINT: needs a model that fairseq also has" in err
    assert not (tmp_path / "stock.pt").exists()


def test_raw_scores_are_scores_and_no_perplexity(trained: Callable[[str], Trained], tmp_path: Path, cli: Cli) -> None:
    trained_model = trained("nce")
    (tmp_path / "text").write_text("a b c\nj\n\na a a a\n")
    command = ["score", trained_model.checkpoint, tmp_path / "text", "--data", trained_model.data]
    out, err = cli(*command, "--raw")
    hub, sums, log_z, log_p = trained_model.hub, [], [], []
    for line in (tmp_path / "text").read_text().splitlines():
        words = [hub.task.source_dictionary.index(word) for word in line.split()] + [2]
        with torch.no_grad():
            scores = hub.models[0](torch.tensor([[2, *words[:-1]]]))[0][0].double()
        picked = scores.gather(1, torch.tensor(words).unsqueeze(1)).squeeze(1)
        sums.append(picked.sum().item())
        log_z += scores.logsumexp(1).tolist()
        log_p += (picked - scores.logsumexp(1)).tolist()
    assert [float(line.split("\t")[0]) for line in out.splitlines()] == pytest.approx(sums, rel=1e-5)
    z = torch.tensor(log_z)
    assert "4 sentences, 12 tokens (0 unknown), mean raw score" in err
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", err)]
    expected = [sum(sums) / 12, sum(log_p) / 12, z.mean(), z.abs().mean(), z.std(correction=0)]
    assert numbers == pytest.approx([float(each) for each in expected], abs=1e-4)
    assert "no log-probability" in err
    assert "perplexity" not in err
    # However it is batched, the same; with a sample, of as many tokens.
    found, err = cli(*command, "--raw", "--raw-sample", "3", "--max-tokens", "1")
    assert [float(line.split("\t")[0]) for line in found.splitlines()] == pytest.approx(sums, rel=1e-5)
    assert "of 3 tokens drawn at random" in err
    assert "--raw-sample: needs 1 or more; got 0" in cli(*command, "--raw", "--raw-sample", "0", status=2).err
    command[1] = trained("tree").checkpoint
    message = "--raw: needs an output layer that scores words, softmax, nce or sampled; got --output-layer tree"
    assert message in cli(*command, "--raw", status=2).err


@pytest.mark.parametrize("name", ["nce", pytest.param("sampled", marks=pytest.mark.slow), "tree"])
def test_other_updates(name: str, train: InProcess, lm_data: Path, tmp_path: Path) -> None:
    """Of several batches, in bfloat16; with a moving average, which leaves counts alone."""
    command = (lm_data, *LAYERS[name], *FLAGS, "--batch-size", 12, "--max-epoch", 2)
    for more in (("--update-freq", 2), ("--bf16",)):
        first, second = logged(train(*command, *more, "--no-save"), "valid_ppl")
        assert second < first
    train(*command, "--max-update", 3, "--store-ema", "--ema-decay", 0.9, "--save-dir", tmp_path)
    counts = "decoder.output." + ("parents" if name == "tree" else "over.counts")
    averaged = saved(tmp_path)["ema"]
    assert torch.equal(averaged[counts], model_state(tmp_path)[counts])
    assert averaged[counts].dtype == torch.int64


# --- resume ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "more"),
    [("class-file", ("--store-ema",)), ("class-tree", ()), pytest.param("class-file", (), marks=pytest.mark.slow)],
)
def test_resume_needs_no_file_of_classes(
    name: str, more: tuple, train: InProcess, evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    """And ends where it would have ended with one, of those that our command makes; nor does evaluation need it."""
    file = tmp_path / "classes"
    assert main(["classes", str(lm_data), "--classes", "4", "--output", str(file)]) == 0
    flags = (*flags_of(name, file), *FLAGS, "--batch-size", 12, "--no-epoch-checkpoints", *more)
    train(lm_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path / "whole")
    train(lm_data, *flags, "--max-epoch", 1, "--save-dir", tmp_path / "halves")
    file.unlink()
    text = train(lm_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path / "halves")
    assert_same(saved(tmp_path / "halves"), saved(tmp_path / "whole"))
    valid = ("--gen-subset", "valid", "--batch-size", 12, "--task", "contiguous_lm")
    perplexity = evaluate(lm_data, *valid, "--path", tmp_path / "halves/checkpoint_last.pt")[1]
    assert perplexity == pytest.approx(logged(text, "valid_ppl")[-1], abs=0.011)
    file.write_text("a 1\nb 2\nc 1\nd 2\n")
    with pytest.raises(ValueError, match="--class-file: needs the file of the checkpoint's training, .* other"):
        train(lm_data, *flags, "--max-epoch", 4, "--save-dir", tmp_path / "halves")


def test_resume_with_other_classes(
    trained: Callable[[str], Trained], train: InProcess, lm_data: Path, tmp_path: Path
) -> None:
    model = trained("classes")
    flags = (*model.flags, *FLAGS, "--max-epoch", 3, "--save-dir", tmp_path)
    shutil.copy(model.checkpoint, tmp_path)
    with pytest.raises(ValueError, match="--classes: needs 4, with which the weights .* got 7 "):
        train(lm_data, *flags, "--classes", 7)
    with pytest.raises(ValueError, match="--output-layer: needs classes, with which the weights .* got short-list"):
        train(lm_data, *flags, "--classes", 100, "--output-layer", "short-list", "--short-list", 3)
    text = train(shutil.copytree(lm_data, tmp_path / "data"), *flags, "--train-subset", "valid")
    assert "--output-layer classes: the 4 classes are those of the checkpoint, not those of the options" in text
    states = [model_state(folder)["decoder.output.over.class_of"] for folder in (model.folder, tmp_path)]
    assert torch.equal(*states)


def test_a_tree_that_a_file_of_classes_was_given_for_is_read(
    trained: Callable[[str], Trained], evaluate: Evaluate, lm_data: Path, tmp_path: Path
) -> None:
    """Version 0.1.2 ignored the file."""
    state = torch.load(trained("tree").checkpoint, weights_only=False)
    (tmp_path / "classes").write_text("a 1\nb 2\n")
    found = []
    for file in (None, str(tmp_path / "classes")):
        state["cfg"]["model"]["class_file"] = file
        torch.save(state, tmp_path / "model.pt")
        command = ("--task", "contiguous_lm", "--path", tmp_path / "model.pt", "--gen-subset", "valid")
        found.append(evaluate(lm_data, *command, "--batch-size", 6))
    assert found[0] == found[1]
