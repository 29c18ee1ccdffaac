"""Output layers that know the counts of words, through the commands: training, resume, scoring, decoding, refusals."""

import functools
import logging
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq_cli.eval_lm
import fairseq_cli.generate
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.data import data_utils

import fairseq_tiedemb
from fairseq_tiedemb.cli import main
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM
from fairseq_tiedemb.outputs import ClassBased, ShortList

from .conftest import SPLIT_SIZES, MadeOnce, RunCommand, configuration
from .test_compat_commands import logged, noise, shown

Train = Callable[..., str]

SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--tokens-per-sample", 5, "--batch-size", 6)
FLAGS = (*SIZES, "--log-format", "json", "--num-workers", 0)
TIED, UNTIED = ("--arch", "zaremba_lm_small_wt"), ("--arch", "zaremba_lm_small")
LAYERS = {
    "classes": (*TIED, "--sharing-method", "cosine", "--output-layer", "classes", "--classes", 4),
    "class-file": (*UNTIED, "--output-layer", "classes", "--class-file"),
    "short-list": (*UNTIED, "--output-layer", "short-list", "--short-list", 6),
    "tied-short-list": (*TIED, "--output-layer", "short-list", "--short-list", 6),
}
every_layer = pytest.mark.parametrize("name", LAYERS)
# What differs in the table or where the classes come from is rarer.
RARE = ("class-file", "tied-short-list")
rare_layers_are_slow = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in RARE)) for name in LAYERS]
)
CLASS_FILE = "a 0\nb 1\nc 0\nd 1\ne 0\nf 2\nzebra 3\n"


class Trained:
    """A model of an output layer: its checkpoints, what training printed, and a data folder without its text."""

    def __init__(self, folder: Path, flags: tuple, command: Any):
        self.folder, self.flags, self.command = folder, flags, command
        self.data = folder / "data"
        self.checkpoint = folder / "checkpoint_last.pt"
        self.path = ("--path", self.checkpoint)

    @functools.cached_property
    def model(self) -> Any:
        """The last checkpoint's."""
        return TiedLSTMLM.from_pretrained(str(self.folder), self.checkpoint.name, str(self.data)).models[0]

    def log_prob(self, sentence: torch.Tensor) -> torch.Tensor:
        """Logarithms of the probabilities of all words at each place of a sentence, from its scores, (T, V)."""
        previous = torch.cat((torch.tensor([2]), sentence[:-1].long())).unsqueeze(0)
        with torch.no_grad():
            return self.model.output.scores(self.model.extract_features(previous)[0])[0].double()


@pytest.fixture
def trained(run_command: RunCommand, lm_data: Path, made_once: MadeOnce) -> Callable[[str], Trained]:
    """`trained(name)` is a model that has begun to learn, whose file of classes is gone."""

    def trained(name: str) -> Trained:
        def make(folder: Path) -> tuple[tuple, Any]:
            flags = LAYERS[name]
            if name == "class-file":
                (folder / "classes").write_text(CLASS_FILE)
                flags = (*flags, folder / "classes")
            command = run_command("train", lm_data, *flags, *FLAGS, "--max-epoch", 2, "--save-dir", folder)
            if name == "class-file":
                (folder / "classes").unlink()
            shutil.copytree(lm_data, folder / "data", ignore=shutil.ignore_patterns("train.*"))
            return flags, command

        folder, (flags, command) = made_once(f"output-layer-{name}", make)
        return Trained(folder, flags, command)

    return trained


@pytest.fixture
def evaluate(caplog: pytest.LogCaptureFixture) -> Callable[..., tuple[int, float]]:
    """`evaluate(data, *flags)` is fairseq-eval-lm in this process; it returns tokens and perplexity."""

    def evaluate(data: Path, *flags: object) -> tuple[int, float]:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            fairseq_cli.eval_lm.main(configuration(options.get_eval_lm_parser(), data, "--num-workers", 0, *flags))
        text = "\n".join(caplog.messages)
        [count], [perplexity] = re.findall(r"Evaluated ([\d,]+) tokens", text), re.findall(r"plexity: ([\d.]+)", text)
        return int(count.replace(",", "")), float(perplexity)

    return evaluate


@every_layer
def test_training(name: str, trained: Callable[[str], Trained]) -> None:
    text = trained(name).command.stdout
    assert noise(text) == []
    assert max(logged(text, "valid_ppl")) < 12  # words of the text, which come at random
    assert len(logged(text, "train_ppl")) == 2  # no surrogate
    assert ("valid_ppl_as_printed" in text) == ("short-list" in name)
    if name == "classes":
        assert "--output-layer classes: 4 classes of" in text
    if name == "class-file":
        found = re.search(r"--class-file: 3 classes for 6 of (\d+) words in \S+; (\d+) that it lacks are a class", text)
        assert int(found[2]) == int(found[1]) - 6 - 2  # <s> and <pad>
    if name == "short-list":
        assert re.search(r"shares nothing .* output 119, rest", text)  # (6 + 1) rows of 16, and their biases


@rare_layers_are_slow
def test_evaluation(
    name: str,
    trained: Callable[[str], Trained],
    evaluate: Callable[..., tuple[int, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every token once, by exact probabilities that sum to 1; no V scores a word are ever made."""
    model = trained(name)
    text = data_utils.load_indexed_dataset(f"{model.data}/test")
    bits, tokens = 0.0, 0
    for sentence in text:
        log_p = model.log_prob(sentence)
        # The logarithms are in float32.
        torch.testing.assert_close(log_p.exp().sum(1), torch.ones(len(sentence)).double(), rtol=0, atol=1e-6)
        bits -= log_p.gather(1, sentence.long().unsqueeze(1)).sum().item() / math.log(2)
        tokens += len(sentence)

    def scores(*_: Any) -> None:
        raise AssertionError("scores of all words")

    for head in (ClassBased, ShortList, SharedEmbedding):
        monkeypatch.setattr(head, "scores", scores)
    eos = ("--task", "contiguous_lm", "--sample-break-mode", "eos", *model.path)
    assert evaluate(model.data, *eos, "--batch-size", 7) == (tokens, pytest.approx(2 ** (bits / tokens), abs=0.01))
    stock = ("--task", "language_modeling", "--sample-break-mode", "eos", "--softmax-batch", 7, *model.path)
    assert evaluate(model.data, *stock, "--batch-size", 3)[1] == pytest.approx(2 ** (bits / tokens), abs=0.01)
    stream = ("--task", "contiguous_lm", *model.path)
    count, perplexity = evaluate(model.data, *stream, "--tokens-per-sample", 5)
    assert count == tokens
    assert evaluate(model.data, *stream, "--tokens-per-sample", 35) == (count, pytest.approx(perplexity, abs=0.011))


@rare_layers_are_slow
def test_decoding(name: str, trained: Callable[[str], Trained], capsys: pytest.CaptureFixture[str]) -> None:
    model = trained(name)
    flags = ("--task", "contiguous_lm", "--sample-break-mode", "eos", *model.path, "--gen-subset", "valid")
    flags += ("--batch-size", 7, "--beam", 2, "--prefix-size", 2, "--max-len-b", 6)
    fairseq_cli.generate.main(configuration(options.get_generation_parser(), model.data, *flags))
    text = capsys.readouterr().out
    found = {int(number): line for number, line in re.findall(r"^H-(\d+)\t(.*)", text, re.M)}
    assert sorted(found) == list(range(SPLIT_SIZES["valid"]))
    assert not {"<s>", "<pad>"} & set(" ".join(found.values()).split())
    scores = {int(number): line.split() for number, line in re.findall(r"^P-(\d+)\t(.*)", text, re.M)}
    dictionary = checkpoint_utils.load_model_ensemble_and_task([str(model.checkpoint)], {"data": str(model.data)})[2]
    for number in (0, 1):
        words = dictionary.source_dictionary.encode_line(found[number].split("\t")[1], add_if_not_exist=False)
        log_p = model.log_prob(words).gather(1, words.long().unsqueeze(1)).squeeze(1)[-len(scores[number]) :]
        expected = [value / math.log(2) for value in log_p.tolist()]
        # fairseq's beam search begins with the prefix, which it scores too
        assert [float(value) for value in scores[number]] == pytest.approx(expected, abs=1e-3)


def test_fresh_processes(run_command: RunCommand, trained: Callable[[str], Trained]) -> None:
    model = trained("class-file")
    validated = run_command("validate", model.data, "--task", "contiguous_lm", *model.path, "--batch-size", 6)
    assert shown(validated.stdout, "ppl")[-1] == logged(model.command.stdout, "valid_ppl")[-1]
    evaluated = run_command("eval-lm", model.data, "--task", "contiguous_lm", *model.path)
    assert "Perplexity" in evaluated.stdout + evaluated.stderr
    assert noise(evaluated.stdout + evaluated.stderr) == []


@rare_layers_are_slow
def test_score(
    name: str, trained: Callable[[str], Trained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(name)
    sentences = ["a b c", "j j", "e zebra"]
    (tmp_path / "text").write_text("\n".join(sentences) + "\n")
    assert main(["score", str(model.checkpoint), str(tmp_path / "text"), "--data", str(model.data)]) == 0
    out, err = capsys.readouterr()
    task = checkpoint_utils.load_model_ensemble_and_task([str(model.checkpoint)], {"data": str(model.data)})[2]
    total, outside, share = 0.0, 0, 0.0
    state = checkpoint_utils.load_checkpoint_to_cpu(str(model.checkpoint))["model"]
    listed = state.get("decoder.output.over.listed", torch.zeros(0)).tolist()
    unlisted = {word: max(count, 1) for word, count in enumerate(state["decoder.output.over.counts"].tolist())}
    unlisted = {word: count for word, count in unlisted.items() if word > 1 and (word not in listed or word == 3)}
    for sentence, line in zip(sentences, out.splitlines(), strict=True):
        words = task.source_dictionary.encode_line(sentence, add_if_not_exist=False).long()
        value = model.log_prob(words).gather(1, words.unsqueeze(1)).sum().item()
        assert float(line.split("\t")[0]) == pytest.approx(value, rel=1e-5)
        total += value
        for word in words.tolist():
            if word in unlisted:
                outside += 1
                share += math.log(unlisted[word] / sum(unlisted.values()))
    line = f"3 sentences, 10 tokens (1 unknown), perplexity {math.exp(-total / 10):.2f}"
    if "short-list" in name:
        line += f"; {10 * outside:.2f}% of the tokens outside"
        line += f"; perplexity {math.exp(-(total - share) / 10):.2f} as printed"
    assert err.splitlines()[-1] == line


@rare_layers_are_slow
def test_other_commands(
    name: str, trained: Callable[[str], Trained], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(name)
    several = [str(model.folder / f"checkpoint{epoch}.pt") for epoch in (1, 2)]
    assert main(["average", "--inputs", *several, "--output", str(tmp_path / "mean.pt")]) == 0
    (tmp_path / "text").write_text("a b c\n")
    assert main(["score", str(tmp_path / "mean.pt"), str(tmp_path / "text"), "--data", str(model.data)]) == 0
    capsys.readouterr()
    dictionary = ["--dictionary", str(model.data / "dict.txt")]
    assert main(["norms", str(model.checkpoint), *dictionary, "--parameters"]) == 0
    out = capsys.readouterr().out
    if name == "short-list":  # every row of which is a word's
        state = checkpoint_utils.load_checkpoint_to_cpu(str(model.checkpoint))["model"]
        norms = state["decoder.output.weight"].double().norm(dim=1)
        assert re.search(r"^rows +\d+ +7$", out, re.M)
        assert re.search(rf"^mean +\S+ +{norms.mean():.4g}$", out, re.M)
        # two of its rows, </s> and <unk>, have no count in dict.txt
        listed = state["decoder.output.over.listed"].tolist()
        of_words = norms[[place for place, word in enumerate(listed) if word > 3]]
        assert re.search(rf"^1-10 +\S+ +{of_words.mean():.4g}$", out, re.M)
    assert main(["export", str(model.checkpoint), str(tmp_path / "stock.pt")]) == 2
    assert "CHECKPOINT: needs a model that fairseq also has" in capsys.readouterr().err
    assert not (tmp_path / "stock.pt").exists()


# --- resume ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more", [pytest.param((), marks=pytest.mark.slow), ("--store-ema",)], ids=["", "moving average"]
)
def test_resume_needs_no_file_of_classes(
    more: tuple, trained: Callable[[str], Trained], train: Train, lm_data: Path, tmp_path: Path
) -> None:
    """And ends where it would have ended with one."""
    (tmp_path / "classes").write_text(CLASS_FILE)
    flags = (*LAYERS["class-file"], tmp_path / "classes", *FLAGS, "--no-epoch-checkpoints", *more)
    train(lm_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path / "whole")
    train(lm_data, *flags, "--max-epoch", 1, "--save-dir", tmp_path / "halves")
    (tmp_path / "classes").unlink()
    train(lm_data, *flags, "--max-epoch", 2, "--save-dir", tmp_path / "halves")
    states = [
        checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / each / "checkpoint_last.pt"))
        for each in ("whole", "halves")
    ]
    for part in (lambda state: state["model"], lambda state: state["extra_state"].get("ema", {})):
        whole, halves = (part(state) for state in states)
        assert whole.keys() == halves.keys()
        assert [key for key, value in whole.items() if not torch.equal(value, halves[key])] == []


def test_resume_with_other_classes(
    trained: Callable[[str], Trained], train: Train, lm_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = trained("classes")
    flags = (*model.flags, *FLAGS, "--max-epoch", 3, "--save-dir", tmp_path)
    shutil.copy(model.checkpoint, tmp_path)
    with pytest.raises(ValueError, match="--classes: needs 4, with which the weights .* got 7 "):
        train(lm_data, *flags, "--classes", 7)
    with pytest.raises(ValueError, match="--output-layer: needs classes, with which the weights .* got short-list"):
        train(lm_data, *flags, "--classes", 100, "--output-layer", "short-list", "--short-list", 3)
    (tmp_path / "classes").write_text(CLASS_FILE)
    with pytest.raises(ValueError, match="--class-file: needs the file of the checkpoint's training, .* with other"):
        train(lm_data, *flags, "--class-file", tmp_path / "classes")
    text = train(shutil.copytree(lm_data, tmp_path / "data"), *flags, "--train-subset", "valid")
    assert "--output-layer classes: the 4 classes are those of the checkpoint, not those of the options" in text
    states = [
        checkpoint_utils.load_checkpoint_to_cpu(str(path))
        for path in (model.checkpoint, tmp_path / "checkpoint_last.pt")
    ]
    assert torch.equal(*(state["model"]["decoder.output.over.class_of"] for state in states))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--output-layer trees-of-a-kind", "--output-layer: needs a registered layer; got 'trees-of-a-kind'"),
        ("--output-layer classes --classes 0", "--classes: needs 1 or more; got 0. Use 100"),
        (
            "--class-file FILE",
            "--class-file: needs --output-layer classes or tree; got FILE with --output-layer softmax",
        ),
        ("--short-list 5", "--short-list: needs --output-layer short-list; got 5 with --output-layer softmax"),
        ("--output-layer short-list", "--short-list: needs 1 word or more with --output-layer short-list; got 0"),
        ("--output-layer short-list --short-list 14", r"--short-list: needs 1 to \d+ words, .* got 14"),
        ("--output-layer short-list --short-list 1000000000", r"--short-list: needs 1 to \d+ words, .* got 1000000000"),
        ("--output-layer classes --class-file nowhere", r"--class-file: needs a text file .* got 'nowhere' \(No such"),
        (
            "--output-layer classes --label-smoothing 0.1",
            "--label-smoothing: needs 0 with --output-layer classes; got 0",
        ),
        ("--output-layer classes --z-loss 0.1", "--z-loss: needs 0 with --output-layer classes; got 0.1"),
        (
            "--output-layer short-list --short-list 5 --label-smoothing 0.1",
            "--label-smoothing: needs 0 with --output-layer short-list; got 0.1",
        ),
        (
            "--output-layer classes --adaptive-softmax-cutoff 6,10",
            "--output-layer classes: needs one table for all words; got --adaptive-softmax-cutoff 6,10",
        ),
    ],
)
def test_what_cannot_work_is_refused(flags: str, message: str, train: Train, lm_data: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(lm_data, *UNTIED, *FLAGS, *flags.split(), "--max-epoch", 1, "--save-dir", tmp_path)
    assert list(tmp_path.rglob("*.pt")) == []


def test_the_readmes_layer_trains_resumes_and_is_scored(lm_data: Path, run_command: RunCommand, tmp_path: Path) -> None:
    package = Path(fairseq_tiedemb.__file__).parent
    found = re.findall(r"```python\n(.*?)```", (package / "models/README.md").read_text(), re.DOTALL)
    [code] = [block for block in found if "OutputHead" in block]
    plugin = tmp_path / "my_layers"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(code)
    outside = {"user_dir": plugin, "env": {"PYTHONPATH": str(package.parent)}}
    save = ("--save-dir", tmp_path / "run")
    own = ("--output-layer", "tempered", "--output-layer-options", "temperature=1.5")
    command = ("train", lm_data, *TIED, *own, *FLAGS)

    def printed(*arguments: Any, **how: Any) -> str:
        result = run_command(*arguments, **(outside | how))
        return result.stdout + result.stderr

    printed(*command, "--max-epoch", 1, *save)
    assert "Loaded checkpoint" in printed(*command, "--max-epoch", 2, *save)
    other = (*command, "--output-layer-options", "temperature=3", "--max-epoch", 3)
    assert "--output-layer-options: needs temperature=1.5, with which" in printed(*other, *save, check=False)
    path = ("--path", tmp_path / "run/checkpoint_last.pt")
    scored = ("eval-lm", lm_data, *path, "--task", "contiguous_lm", "--tokens-per-sample", 5, "--gen-subset", "valid")
    perplexity = float(re.search(r"Perplexity: ([\d.]+)", printed(*scored))[1])
    validated = ("--task", "contiguous_lm", "--batch-size", 1)
    bits = float(re.search(r"nll_loss ([\d.]+)", printed("validate", lm_data, *path, *validated))[1])
    assert perplexity == pytest.approx(2**bits, rel=2e-3)
    refused = run_command(*scored, env=outside["env"], check=False).stderr
    assert "--output-layer: needs a registered layer; got 'tempered'. Use one of: softmax, adaptive" in refused
