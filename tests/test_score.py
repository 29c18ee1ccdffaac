"""`fairseq-tiedemb score`: sentences rescored by a language model."""

import io
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_tiedemb.analysis import continuous_cache
from fairseq_tiedemb.cli import create_parser, main
from fairseq_tiedemb.cli.score import _of_probabilities
from fairseq_tiedemb.loading import load_language_model
from fairseq_tiedemb.ngram import read_word_scores

from .conftest import Cli, Evaluate, RunCommand
from .untrained import write_checkpoint

# With control characters, which a pipe gets as they are.
SENTENCES = ["a b c", "j", "", "a <pad> <pad> b <pad>", "a a a a a a a a a a", "c \x1b[2Jzebra\x07 b"]
RECURRENT = "--arch zaremba_lm_small_wt --decoder-embed-dim 8 --decoder-hidden-size 8".split()
SMALL = "--decoder-embed-dim 8 --decoder-ffn-embed-dim 8 --decoder-layers 1 --decoder-attention-heads 1".split()
SMALL += "--decoder-input-dim 8 --decoder-output-dim 8".split()


@pytest.fixture(scope="module")
def checkpoint(lm_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lm") / "model.pt"
    write_checkpoint(path, lm_data, *RECURRENT)
    return path


def rows(text: str) -> list[tuple[float, int, str]]:
    parts = [line.split("\t") for line in text.splitlines()]
    return [(float(score), int(tokens), sentence) for score, tokens, sentence in parts]


Refused = Callable[..., str]


@pytest.fixture
def refused(lm_data: Path, tmp_path: Path, cli: Cli) -> Refused:
    """`refused(checkpoint, text, *flags)` is the message of a refusal, which prints no score."""

    def refused(checkpoint: object, text: bytes = b"a b\n", *flags: str, data: object = lm_data) -> str:
        (tmp_path / "text").write_bytes(text)
        out, err = cli("score", checkpoint, tmp_path / "text", "--data", data, *flags, status=2)
        assert out == ""
        return err

    return refused


def changed(checkpoint: Path, path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Another checkpoint, after a change of its content."""
    state = torch.load(checkpoint, weights_only=False)
    change(state)
    torch.save(state, path)
    return path


def test_scores_are_sums_of_log_probabilities(checkpoint: Path, lm_data: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "text").write_text("".join(sentence + "\n" for sentence in SENTENCES))
    arguments = ["score", str(checkpoint), str(tmp_path / "text"), "--data", str(lm_data)]
    out, err = cli(*arguments)
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], {"data": str(lm_data)})
    eos = task.source_dictionary.eos()
    expected = []
    for sentence in SENTENCES:
        words = [task.source_dictionary.index(word) for word in sentence.split()] + [eos]
        with torch.no_grad():
            scores = model.eval()(torch.tensor([[eos, *words[:-1]]]))[0][0].double()
        log_probabilities = torch.log_softmax(scores, -1)
        value = sum(log_probabilities[i, word].item() for i, word in enumerate(words))
        expected.append((pytest.approx(value, rel=1e-5), len(words), sentence))
    assert rows(out) == expected
    total, tokens = sum(row[0] for row in rows(out)), sum(row[1] for row in rows(out))
    assert f"6 sentences, {tokens} tokens (1 unknown), perplexity {math.exp(-total / tokens):.2f}" in err
    # however the sentences are batched
    for one, other in zip(rows(cli(*arguments, "--max-tokens", "1").out), expected, strict=True):
        assert one == other


def test_one_stream_is_what_eval_lm_reads(
    checkpoint: Path, lm_data: Path, text_folder: Path, tmp_path: Path, evaluate: Evaluate, cli: Cli
) -> None:
    """The same tokens and perplexity, however the stream is cut into batches; other scores than of sentences alone."""
    flags = ("--path", checkpoint, "--task", "contiguous_lm", "--gen-subset", "test", "--tokens-per-sample", 7)
    tokens, perplexity = evaluate(lm_data, *flags)
    text = text_folder / "test.src"
    command = ["score", str(checkpoint), str(text), "--data", str(lm_data), "--per-word", str(tmp_path / "words")]
    found = []
    for more in (["--stream"], ["--stream", "--max-tokens", "11"], ["--stream", "--max-tokens", "1"], []):
        out, err = cli(*command, *more)
        words = read_word_scores(tmp_path / "words", flag="WORDS")
        assert words.tokens == [word for line in text.read_text().splitlines() for word in [*line.split(), "</s>"]]
        ends = np.cumsum([number for _, number, _ in rows(out)])[:-1]
        assert [part.sum() for part in np.split(words.logs, ends)] == pytest.approx([row[0] for row in rows(out)])
        assert f"{tokens} tokens (0 unknown), perplexity" in err
        found.append((err.strip().rpartition(" ")[2], words.logs))
    assert float(found[0][0]) == perplexity
    assert found[1][1].tolist() == pytest.approx(found[0][1].tolist(), rel=1e-5)
    assert found[2][1].tolist() == pytest.approx(found[0][1].tolist(), rel=1e-5)
    # The first sentence has nothing before it, the others have.
    first = len(text.read_text().splitlines()[0].split()) + 1
    differences = np.abs(found[3][1] - found[0][1])
    assert differences[:first].max() < 1e-5
    assert differences[first:].max() > 1e-4


def test_a_cache_of_words_that_the_model_cannot_have_gives_a_number() -> None:
    """Whose probability is 0 as a number, not as a logarithm."""
    output = SimpleNamespace(log_prob=lambda features, target: torch.full((len(target),), -2000.0))
    model = SimpleNamespace(output=output, extract_features=lambda **_: (torch.ones(1, 3, 2),))
    for weight, expected in ((0.0, -6000.0), (0.1, -4000.0 + math.log(0.1) + math.log(0.9))):
        cache = continuous_cache.ContinuousCache(model, size=2, theta=1.0, weight=weight)
        cache.log_prob(torch.tensor([[4, 4, 5]]))
        assert cache._total == pytest.approx(expected)
        assert cache.summary().startswith("inf with a cache of 2 words")


def test_a_cache_has_a_perplexity_of_its_own(
    checkpoint: Path, lm_data: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the stream is cut; place by place in float64, from the model's features."""
    monkeypatch.setattr(continuous_cache, "BLOCK", 5)
    (tmp_path / "text").write_text("a b a c a b\nb b a d\na c\n")
    command = ["score", str(checkpoint), str(tmp_path / "text"), "--data", str(lm_data), "--stream"]
    plain = cli(*command)
    model, task = load_language_model(checkpoint, lm_data)
    words = torch.cat([task.source_dictionary.encode_line(line) for line in (tmp_path / "text").open()]).long()
    previous = torch.cat((torch.tensor([task.source_dictionary.eos()]), words[:-1])).unsqueeze(0)
    with torch.no_grad():
        h = model.extract_features(previous, stream_position=0)[0][0].double().numpy()
        log_p = model.log_prob(words.unsqueeze(0), src_tokens=previous, stream_position=0)[0].double().numpy()
    size, theta, share = 4, 2.5, 0.3
    logs = [log_p[0]]
    for t in range(1, len(words)):
        places = range(max(0, t - size), t)
        weights = np.exp([theta * h[t] @ h[i] for i in places])
        cached = sum(weight for weight, i in zip(weights, places, strict=True) if words[i] == words[t]) / weights.sum()
        logs.append(np.log((1 - share) * np.exp(log_p[t]) + share * cached))
    expected = f"; {np.exp(-np.mean(logs)):.2f} with a cache of 4 words, theta 2.5, lambda 0.3\n"
    cache = ["--cache", "4", "--cache-theta", "2.5", "--cache-lambda", "0.3"]
    for cut in ("4000", "3"):
        out, err = cli(*command, *cache, "--max-tokens", cut)
        assert err == plain.err.rstrip("\n") + expected
        assert [row[0] for row in rows(out)] == pytest.approx([row[0] for row in rows(plain.out)])


def test_a_diverged_model_has_an_infinite_perplexity_or_is_refused(
    checkpoint: Path, lm_data: Path, tmp_path: Path, cli: Cli, refused: Refused
) -> None:
    def products_that_are_not_finite(state: dict[str, Any]) -> None:
        for entry in state["model"].values():
            entry.copy_(3e38 * entry.sign())

    def a_large_bias(state: dict[str, Any]) -> None:
        [name] = [name for name in state["model"] if name.startswith("decoder.output") and "bias" in name]
        state["model"][name][0] = 1e4

    path = changed(checkpoint, tmp_path / "nan.pt", products_that_are_not_finite)
    for flags in ((), ("--stream",)):
        message = f"CHECKPOINT: needs a model whose scores are numbers; got nan from {path}. Use"
        assert message in refused(path, b"a b\n", *flags)
    path = changed(checkpoint, tmp_path / "inf.pt", a_large_bias)
    assert "perplexity inf" in cli("score", path, tmp_path / "text", "--data", lm_data).err


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (("--task", "contiguous_lm", *RECURRENT), ["--add-bos-token"]),
        (("--task", "language_modeling", "--arch", "tied_transformer_lm", *SMALL), ["--add-bos-token"]),
        (
            ("--task", "language_modeling", "--arch", "transformer_lm", *SMALL),
            ["--add-bos-token", "--output-dictionary-size", 9],
        ),
    ],
    ids=["recurrent", "exported", "fairseq's, with fewer words"],
)
def test_sentences_have_the_context_of_their_training(
    flags: tuple,
    options: list,
    lm_data: Path,
    text_folder: Path,
    tmp_path: Path,
    evaluate: Evaluate,
    caplog: pytest.LogCaptureFixture,
    cli: Cli,
) -> None:
    """What fairseq-eval-lm gives, and CTranslate2 where a model can be exported."""
    options = [*options, "--sample-break-mode", "eos", "--tokens-per-sample", 20]
    checkpoint, text = tmp_path / "model.pt", text_folder / "test.src"
    write_checkpoint(checkpoint, lm_data, *flags, *options)
    command = ("--path", checkpoint, *flags[:2], *options, "--gen-subset", "test", "--output-word-probs")
    _, perplexity = evaluate(lm_data, *command)
    evaluated = "\n".join(caplog.messages)
    command = ["score", str(checkpoint), str(text), "--data", str(lm_data), "--per-word", str(tmp_path / "words")]
    out, err = cli(*command)
    expected = {  # by the sentence's number
        int(number): re.findall(r"(\S+) \[(.*?)\]", line)
        for number, line in re.findall(r"^(\d+) (\S+ \[-.*\])$", evaluated, re.MULTILINE)
    }
    assert len(expected) == len(rows(out)) == 100
    words = read_word_scores(tmp_path / "words", flag="WORDS")
    tokens, logs = zip(*(pair for _, sentence in sorted(expected.items()) for pair in sentence), strict=True)
    assert words.tokens == list(tokens)
    assert words.logs.tolist() == pytest.approx([float(log) for log in logs], abs=1e-4)
    assert err.strip().endswith(f"perplexity {perplexity:.2f}")
    assert ("(0 unknown)" in err) == ("<unk>" not in words.tokens) == (9 not in options)
    if "tied_transformer_lm" in flags:
        ctranslate2 = pytest.importorskip("ctranslate2")
        cli("export", checkpoint, tmp_path / "engine", "--to", "ctranslate2")
        first = text.read_text().splitlines()[0].split()
        (found,) = ctranslate2.Generator(str(tmp_path / "engine")).score_batch([["<s>", "</s>", *first, "</s>"]])
        assert found.log_probs[1:] == pytest.approx(words.logs[: len(first) + 1].tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("option", "value", "flag", "message"),
    [
        ("add_bos_token", True, "--stream", "--stream: needs a model that .* got one of --add-bos-token True"),
        ("output_dictionary_size", 16, "--stream", "--stream: needs a model that .* of --output-dictionary-size 16"),
        ("add_bos_token", True, "--raw", "--raw: needs a model that .* got .*x.pt, trained with --add-bos-token"),
    ],
)
def test_refuses_sentences_of_another_kind(
    option: str, value: object, flag: str, message: str, checkpoint: Path, tmp_path: Path, refused: Refused
) -> None:
    def change(state: dict[str, Any]) -> None:
        state["cfg"]["task"] |= {option: value, "sample_break_mode": "eos"}

    error = refused(changed(checkpoint, tmp_path / "x.pt", change), b"a b\n", flag)
    assert re.search(message, error), error


def test_refuses_weights_that_are_not_finite(
    checkpoint: Path, lm_data: Path, tmp_path: Path, cli: Cli, refused: Refused
) -> None:
    name = "decoder.stack.weight_hh.0"
    poisoned = changed(
        checkpoint, tmp_path / "poisoned.pt", lambda state: state["model"][name].view(-1)[:1].fill_(torch.nan)
    )
    message = f"CHECKPOINT: needs finite weights; got {poisoned} with 1 of 256 numbers of {name} inf or nan. Use a che"
    assert message in refused(poisoned, b"a b\n", "--per-word", str(tmp_path / "words"))
    assert not (tmp_path / "words").exists()
    assert (
        message.replace("CHECKPOINT", "--checkpoint") in cli("updates", lm_data, "--checkpoint", poisoned, status=2).err
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda state: state.update(cfg=None),
            "needs settings of model and training, as .*; got .*x.pt, which has none of its model",
        ),
        (lambda state: state["cfg"].update(task={}), "needs a task; got .*x.pt, whose settings name none. Use"),
        (lambda state: state.update(model=5), "x.pt: needs a checkpoint of fairseq-train; got one that holds no model"),
        (lambda state: state.update(task_state=5), "x.pt: needs task_state that is a dictionary; got 5. Use"),
        (lambda state: state.update(extra_state=["a"]), "x.pt: needs extra_state that is a dictionary; got a list"),
        (
            lambda state: state["model"].popitem(),
            "x.pt: needs exactly the weights of its model; got others .*Missing key",
        ),
        (
            lambda state: state["model"].update({"decoder.stack.weight_hh.0": torch.zeros(9, 8)}),
            r"x.pt: needs dictionaries that fit its weights; got others \(.*size mismatch",
        ),
    ],
)
def test_refuses_a_checkpoint_that_is_none(
    change: Callable[[dict[str, Any]], None], message: str, checkpoint: Path, tmp_path: Path, refused: Refused
) -> None:
    error = refused(changed(checkpoint, tmp_path / "x.pt", change), b"a b\n")
    assert re.search(message, error), error


def test_words_are_as_the_model_knows_them(checkpoint: Path, lm_data: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a zebra <pad>\n\n")
    command = ["score", str(checkpoint), str(tmp_path / "text"), "--data", str(lm_data)]
    assert main([*command, "--per-word", str(tmp_path / "words")]) == 0
    words = read_word_scores(tmp_path / "words", flag="WORDS")
    assert words.tokens == ["a", "<unk>", "<pad>", "</s>", "</s>"]
    assert (words.logs < 0).all()


def test_reads_standard_input(checkpoint: Path, lm_data: Path, run_command: RunCommand) -> None:
    process = run_command("fairseq_tiedemb.cli", "score", checkpoint, "--data", lm_data, input="a b\nc\n")
    assert [row[1:] for row in rows(process.stdout)] == [(3, "a b"), (2, "c")]


@pytest.fixture
def redirected(tmp_path: Path) -> Iterator[Path]:
    """A text of two sentences that standard input comes from."""
    path, before = tmp_path / "sentences", os.dup(0)
    path.write_text("a b\nc\n")
    with path.open() as file:
        os.dup2(file.fileno(), 0)
    yield path
    os.dup2(before, 0)
    os.close(before)


def test_standard_input_is_not_replaced(checkpoint: Path, lm_data: Path, redirected: Path, cli: Cli) -> None:
    error = cli("score", checkpoint, "--data", lm_data, "--per-word", redirected, status=2).err
    assert f"--per-word: needs a name that is not among the inputs; got {redirected}" in error
    assert redirected.read_text() == "a b\nc\n"


@pytest.mark.parametrize("words", [(), ("-",)])
def test_standard_input_is_utf8(
    words: tuple[str, ...], checkpoint: Path, lm_data: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO("a é\n".encode("latin1")), encoding="utf-8", errors="surrogateescape")
    monkeypatch.setattr("sys.stdin", stream)
    error = cli("score", checkpoint, "--data", lm_data, *words, status=2).err
    assert "SENTENCES: need text in UTF-8; got <stdin> (" in error


def test_lines_of_standard_input_end_as_those_of_files(
    checkpoint: Path, lm_data: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"a b\r\nc\ra\n"
    (tmp_path / "text").write_bytes(text)
    of_file = cli("score", checkpoint, "--data", lm_data, tmp_path / "text").out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text), newline="\n"))  # as that of a process
    assert cli("score", checkpoint, "--data", lm_data).out == of_file
    assert [row[1:] for row in rows(of_file)] == [(3, "a b"), (2, "c"), (2, "a")]


def test_a_closed_standard_input_has_no_sentences(
    checkpoint: Path, lm_data: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as `<&-` does
    assert "got an empty text, standard input. Use" in cli("score", checkpoint, "--data", lm_data, status=2).err


def test_words_are_written_before_a_pipe_is_closed(
    checkpoint: Path, lm_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError

    (tmp_path / "text").write_text("a b\n")
    command = ["score", checkpoint, tmp_path / "text", "--data", lm_data, "--per-word", tmp_path / "words", "--cpu"]
    monkeypatch.setattr("builtins.print", closed)
    with pytest.raises(BrokenPipeError):
        (arguments := create_parser().parse_args(list(map(str, command)))).run(arguments)
    assert len((tmp_path / "words").read_text().splitlines()) == 3


def test_a_byte_order_mark_is_in_no_word(checkpoint: Path, lm_data: Path, tmp_path: Path, cli: Cli) -> None:
    for name, mark in (("marked", "\ufeff"), ("plain", "")):
        (tmp_path / name).write_text(f"{mark}a b\nc\n", encoding="utf-8")
    texts = [str(tmp_path / name) for name in ("plain", "marked")]
    out, err = cli("score", checkpoint, *texts, "--data", lm_data)
    for command in ((*texts[:1], "--data", lm_data, *texts[1:]), ("--data", lm_data, *texts)):
        assert cli("score", checkpoint, *command).out == out  # Python 3.11's argparse refused these
    plain, marked = rows(out)[:2], rows(out)[2:]
    assert plain == [(pytest.approx(row[0]), *row[1:]) for row in marked]
    assert "(0 unknown)" in err


def test_a_text_without_a_probability_has_an_infinite_perplexity_as_printed_too() -> None:
    model = SimpleNamespace(
        parameters=lambda: iter([torch.zeros(1)]), tally=lambda *_: {"nll:as_printed": torch.tensor(math.inf)}
    )
    assert _of_probabilities(model, torch.tensor([4, 2]), -math.inf) == "perplexity inf; perplexity inf as printed"


def test_refuses_files_and_options(checkpoint: Path, tmp_path: Path, cli: Cli, refused: Refused) -> None:
    for text, flags, message in (
        (b"", (), f"SENTENCES: need one line at least; got an empty text, {tmp_path}/text."),
        ("a b\nhé\n".encode("latin1"), (), "SENTENCES: need text in UTF-8; got TEXT ('utf-8' codec can't decode"),
        (b"a\n", ("--per-word", "none/words"), "--per-word: needs a folder that exists; got none"),
        (b"a\n", ("--per-word", "words", "--raw"), "--per-word: needs log-probabilities; got --raw"),
        (b"a\n", ("--raw-sample", "5"), "--raw-sample: needs --raw, whose log Z it is of; got 5"),
        (b"a\n", ("--cache", "5"), "--cache: needs --stream, of which it holds the last words; got 5"),
        (b"a\n", ("--cache-theta", "0"), "--cache-theta: needs --cache; got 0.0"),
        (b"a\n", ("--cache-theta", "1e39"), "--cache-theta: needs 0 to 1,000,000; got 1e39. Use"),
        (b"a\n", ("--stream", "--raw", "--cache", "5"), "--cache: needs log-probabilities; got --raw"),
        (b"a\n", ("--cache", "9" * 20), "--cache: needs 1 to 1,000,000,000; got 99999999999999999999. Use 500, say."),
        (b"a\n", ("--cache-lambda", "2"), "--cache-lambda: needs 0 to 0.999; got 2. Use 0.1, say."),
        (b"a\n", ("--cache-lambda", "1"), "--cache-lambda: needs 0 to 0.999; got 1. Use 0.1, say."),
        *(
            (b"a\n", ("--max-tokens", number), f"--max-tokens: needs 1 or more; got {number}. Use 4000, say.")
            for number in ("0", "9" * 30)
        ),
    ):
        assert message.replace("TEXT", f"{tmp_path}/text") in refused(checkpoint, text, *flags)
    assert "CHECKPOINT: needs a checkpoint; got nowhere.pt (No such" in refused("nowhere.pt")
    assert "--data: needs a file; got nowhere/dict.txt" in refused(checkpoint, data="nowhere")
    (tmp_path / "text").rename(tmp_path / "words")
    err = cli("score", checkpoint, tmp_path / "text", "--data", "nowhere", status=2).err
    assert f"SENTENCES: need text files; got {tmp_path}/text" in err


def test_refuses_a_translation_model(parallel_data: Path, tmp_path: Path, refused: Refused) -> None:
    data = shutil.copytree(parallel_data, tmp_path / "data")
    shutil.copy(data / "dict.tgt.txt", data / "dict.txt")  # as fusion with a language model needs it
    sizes = [f"--{side}-{what}" for side in ("encoder", "decoder") for what in ("embed-dim", "hidden-size")]
    sizes += ["--decoder-out-embed-dim"]
    write_checkpoint(tmp_path / "x.pt", data, "--arch", "lstm", *(word for size in sizes for word in (size, "4")))
    for folder in (data, parallel_data):  # which has no dict.txt
        error = refused(tmp_path / "x.pt", data=folder)
        assert f"CHECKPOINT: needs a language model; got LSTMModel in {tmp_path}/x.pt. Use another" in error


def test_refuses_sentences_beyond_the_models_length(lm_data: Path, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "x.pt"
    flags = ("--task", "language_modeling", "--arch", "transformer_lm", "--tokens-per-sample", 4)
    write_checkpoint(path, lm_data, *flags, *SMALL)
    error = refused(path, b"a b c\na b c a\n")
    assert re.search(r"SENTENCES: need at most 4 tokens .* got 5 in line 2", error), error
    message = "--stream: needs a model that carries its state over, .* of fairseq_tiedemb; got Transformer"
    assert re.search(message, refused(path, b"a\n", "--stream"))
