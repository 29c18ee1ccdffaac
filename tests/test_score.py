"""`fairseq-tiedemb score`: sentences rescored by a language model."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.ngram import read_word_scores

from .conftest import RunCommand

SENTENCES = ["a b c", "j", "", "a <pad> <pad> b <pad>", "a a a a a a a a a a", "c zebra b"]


@pytest.fixture(scope="module")
def checkpoint(run_command: RunCommand, lm_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    run_command(
        *("train", lm_data, "--arch", "zaremba_lm_small_wt", "--decoder-embed-dim", 8, "--decoder-hidden-size", 8),
        *("--batch-size", 4, "--tokens-per-sample", 5, "--max-update", 5, "--disable-validation"),
        *("--no-epoch-checkpoints", "--save-dir", folder),
    )
    return folder / "checkpoint_last.pt"


def rows(text: str) -> list[tuple[float, int, str]]:
    parts = [line.split("\t") for line in text.splitlines()]
    return [(float(score), int(tokens), sentence) for score, tokens, sentence in parts]


def test_scores_are_sums_of_log_probabilities(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("".join(sentence + "\n" for sentence in SENTENCES))
    arguments = ["score", str(checkpoint), str(tmp_path / "text"), "--data", str(lm_data)]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
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
    assert main([*arguments, "--max-tokens", "1"]) == 0
    for one, other in zip(rows(capsys.readouterr().out), expected, strict=True):
        assert one == other


def test_one_stream_is_what_eval_lm_reads(
    checkpoint: Path,
    lm_data: Path,
    text_folder: Path,
    tmp_path: Path,
    run_command: RunCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same tokens and perplexity, however the stream is cut into batches; other scores than of sentences alone."""
    evaluated = run_command(
        *("eval-lm", lm_data, "--path", checkpoint, "--task", "contiguous_lm", "--gen-subset", "test"),
        *("--tokens-per-sample", 7),
    ).stderr
    [(tokens, perplexity)] = re.findall(r"Evaluated ([\d,]+) tokens.*\n.*Perplexity: ([\d.]+)", evaluated)
    text = text_folder / "test.src"
    command = ["score", str(checkpoint), str(text), "--data", str(lm_data), "--per-word", str(tmp_path / "words")]
    found = []
    for more in (["--stream"], ["--stream", "--max-tokens", "11"], ["--stream", "--max-tokens", "1"], []):
        assert main([*command, *more]) == 0
        out, err = capsys.readouterr()
        words = read_word_scores(tmp_path / "words", flag="WORDS")
        assert words.tokens == [word for line in text.read_text().splitlines() for word in [*line.split(), "</s>"]]
        ends = np.cumsum([number for _, number, _ in rows(out)])[:-1]
        assert [part.sum() for part in np.split(words.logs, ends)] == pytest.approx([row[0] for row in rows(out)])
        assert f"{tokens} tokens (0 unknown), perplexity" in err
        found.append((err.strip().rpartition(" ")[2], words.logs))
    assert found[0][0] == perplexity
    assert found[1][1].tolist() == pytest.approx(found[0][1].tolist(), rel=1e-5)
    assert found[2][1].tolist() == pytest.approx(found[0][1].tolist(), rel=1e-5)
    # The first sentence has nothing before it, the others have.
    first = len(text.read_text().splitlines()[0].split()) + 1
    differences = np.abs(found[3][1] - found[0][1])
    assert differences[:first].max() < 1e-5
    assert differences[first:].max() > 1e-4


@pytest.mark.parametrize("more", [(), ("--stream",)])
def test_scores_that_are_no_numbers_are_refused(
    more: tuple, checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of finite weights, whose products are not."""
    state = torch.load(checkpoint, weights_only=False)
    for name, entry in state["model"].items():
        if name.startswith("decoder.output") or name.endswith("weight_hh_l1"):
            entry.fill_(3e38)
    torch.save(state, tmp_path / "diverged.pt")
    (tmp_path / "text").write_text("a b\n")
    text = tmp_path / "text"
    assert main(["score", str(tmp_path / "diverged.pt"), str(text), "--data", str(lm_data), *more]) == 2
    out, err = capsys.readouterr()
    assert f"CHECKPOINT: needs a model whose scores are numbers; got nan from {tmp_path}/diverged.pt. Use" in err
    assert out == ""


def test_a_diverged_model_has_an_infinite_perplexity(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(checkpoint, weights_only=False)
    [bias] = [entry for name, entry in state["model"].items() if name.startswith("decoder.output") and "bias" in name]
    bias[0] = 1e4
    torch.save(state, tmp_path / "diverged.pt")
    (tmp_path / "text").write_text("a b\n")
    assert main(["score", str(tmp_path / "diverged.pt"), str(tmp_path / "text"), "--data", str(lm_data)]) == 0
    assert "perplexity inf" in capsys.readouterr().err


SMALL = ("--decoder-embed-dim", 8, "--decoder-ffn-embed-dim", 8, "--decoder-layers", 1, "--decoder-attention-heads", 1)
SMALL += ("--decoder-input-dim", 8, "--decoder-output-dim", 8)


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (
            "--task contiguous_lm --arch zaremba_lm_small_wt --decoder-embed-dim 8 --decoder-hidden-size 8".split(),
            ["--add-bos-token"],
        ),
        (("--task", "language_modeling", "--arch", "tied_transformer_lm", *SMALL), ["--add-bos-token"]),
        (
            ("--task", "language_modeling", "--arch", "transformer_lm", *SMALL),
            ["--add-bos-token", "--output-dictionary-size", 9],
        ),
    ],
    ids=["recurrent", "exported", "fairseq's, with fewer words"],
)
def test_sentences_have_the_context_of_their_training(
    flags: list,
    options: list,
    lm_data: Path,
    text_folder: Path,
    tmp_path: Path,
    run_command: RunCommand,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What fairseq-eval-lm gives, and CTranslate2 where a model can be exported."""
    options = [*options, "--sample-break-mode", "eos"]
    run_command(
        *("train", lm_data, *flags, *options, "--tokens-per-sample", 20, "--optimizer", "adam", "--lr", 0.1),
        *("--batch-size", 20, "--max-update", 5, "--disable-validation", "--num-workers", 0, "--save-dir", tmp_path),
    )
    checkpoint, text = tmp_path / "checkpoint_last.pt", text_folder / "test.src"
    evaluated = run_command(
        *("eval-lm", lm_data, "--path", checkpoint, *flags[:2], *options, "--gen-subset", "test"),
        *("--tokens-per-sample", 20, "--output-word-probs"),
    ).stderr
    command = ["score", str(checkpoint), str(text), "--data", str(lm_data), "--per-word", str(tmp_path / "words")]
    assert main(command) == 0
    out, err = capsys.readouterr()
    expected = {  # by the sentence's number
        int(number): re.findall(r"(\S+) \[(.*?)\]", line)
        for number, line in re.findall(r"(?: |:)(\d+) (\S+ \[-.*\])$", evaluated, re.MULTILINE)
    }
    assert len(expected) == len(rows(out)) == 100
    words = read_word_scores(tmp_path / "words", flag="WORDS")
    tokens, logs = zip(*(pair for _, sentence in sorted(expected.items()) for pair in sentence), strict=True)
    assert words.tokens == list(tokens)
    assert words.logs.tolist() == pytest.approx([float(log) for log in logs], abs=1e-4)
    assert err.strip().endswith(f"perplexity {re.findall('Perplexity: (.*)', evaluated)[0]}")
    assert ("(0 unknown)" in err) == ("<unk>" not in words.tokens) == (len(options) < 4)
    if "tied_transformer_lm" in flags:
        ctranslate2 = pytest.importorskip("ctranslate2")
        assert main(["export", str(checkpoint), str(tmp_path / "engine"), "--to", "ctranslate2"]) == 0
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
    option: str,
    value: object,
    flag: str,
    message: str,
    checkpoint: Path,
    lm_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    state = torch.load(checkpoint, weights_only=False)
    task = state["cfg"]["task"]
    (task if isinstance(task, dict) else vars(task)).update({option: value, "sample_break_mode": "eos"})
    torch.save(state, tmp_path / "x.pt")
    (tmp_path / "text").write_text("a b\n")
    assert main(["score", str(tmp_path / "x.pt"), str(tmp_path / "text"), "--data", str(lm_data), flag]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(message, err), err


def test_refuses_weights_that_are_not_finite(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = torch.load(checkpoint, weights_only=False)
    name = "decoder.stack.weight_hh.0"
    state["model"][name].view(-1)[0] = torch.nan
    poisoned, words = tmp_path / "poisoned.pt", tmp_path / "words"
    torch.save(state, poisoned)
    (tmp_path / "text").write_text("a b\n")
    message = f"CHECKPOINT: needs finite weights; got {poisoned} with 1 of 256 numbers of {name} inf or nan. Use a che"
    options = ["--data", str(lm_data), "--per-word", str(words)]
    assert main(["score", str(poisoned), str(tmp_path / "text"), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert not words.exists()
    assert main(["updates", str(lm_data), "--checkpoint", str(poisoned)]) == 2
    assert message in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.pt", "--data", "DATA"], "CHECKPOINT: needs a file; got nowhere.pt"),
        (["CHECKPOINT", "--data", "nowhere"], "--data: needs a file; got nowhere/dict.txt"),
        (["CHECKPOINT", "nothing.txt", "--data", "DATA"], "SENTENCES: need text files; got nothing.txt"),
        (
            ["CHECKPOINT", "--data", "DATA", "--per-word", "none/words"],
            "--per-word: needs a folder that exists; got none",
        ),
        (
            ["CHECKPOINT", "--data", "DATA", "--raw-sample", "5"],
            "--raw-sample: needs --raw, whose log Z it is of; got 5",
        ),
        (["CHECKPOINT", "--data", "DATA", "--max-tokens", "0"], "--max-tokens: needs a positive number; got 0"),
    ],
)
def test_refuses(
    checkpoint: Path, lm_data: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"CHECKPOINT": str(checkpoint), "DATA": str(lm_data)}
    assert main(["score", *(known.get(each, each) for each in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_refuses_a_translation_model(
    train: Callable[..., str], parallel_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = shutil.copytree(parallel_data, tmp_path / "data")
    shutil.copy(data / "dict.tgt.txt", data / "dict.txt")  # as fusion with a language model needs it
    flags = "--arch lstm --encoder-embed-dim 4 --decoder-embed-dim 4 --encoder-hidden-size 4 --decoder-hidden-size 4"
    flags += " --decoder-out-embed-dim 4 --optimizer sgd --lr 0.1 --batch-size 4 --max-update 1 --disable-validation"
    train(data, *flags.split(), "--save-dir", tmp_path)
    for folder in (data, parallel_data):  # which has no dict.txt
        assert main(["score", str(tmp_path / "checkpoint_last.pt"), "--data", str(folder)]) == 2
        assert "CHECKPOINT: needs a language model; got LSTMModel, another kind of model." in capsys.readouterr().err


def test_refuses_an_empty_text(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").touch()
    assert main(["score", str(checkpoint), str(tmp_path / "empty"), "--data", str(lm_data)]) == 2
    assert f"SENTENCES: need one line at least; got an empty text, {tmp_path}/empty." in capsys.readouterr().err


def test_a_byte_order_mark_is_in_no_word(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, mark in (("marked", "\ufeff"), ("plain", "")):
        (tmp_path / name).write_text(f"{mark}a b\nc\n", encoding="utf-8")
    texts = [str(tmp_path / name) for name in ("plain", "marked")]
    assert main(["score", str(checkpoint), *texts, "--data", str(lm_data)]) == 0
    out, err = capsys.readouterr()
    plain, marked = rows(out)[:2], rows(out)[2:]
    assert plain == [(pytest.approx(row[0]), *row[1:]) for row in marked]
    assert "(0 unknown)" in err


def test_refuses_text_of_another_encoding(
    checkpoint: Path, lm_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "latin1.txt"
    text.write_bytes("a b\nhé\n".encode("latin1"))
    assert main(["score", str(checkpoint), str(text), "--data", str(lm_data)]) == 2
    message = f"SENTENCES: need text in UTF-8; got {text} ('utf-8' codec can't decode byte 0xe9"
    assert message in capsys.readouterr().err


def test_refuses_sentences_beyond_the_models_length(
    lm_data: Path, tmp_path: Path, run_command: RunCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(
        *("train", lm_data, "--task", "language_modeling", "--arch", "transformer_lm", "--tokens-per-sample", 4),
        *(
            "--decoder-embed-dim",
            8,
            "--decoder-ffn-embed-dim",
            8,
            "--decoder-layers",
            1,
            "--decoder-attention-heads",
            1,
        ),
        *("--optimizer", "sgd", "--max-tokens", 100, "--max-update", 1, "--disable-validation", "--save-dir", tmp_path),
    )
    (tmp_path / "text").write_text("a b c\na b c a\n")
    status = main(["score", str(tmp_path / "checkpoint_last.pt"), str(tmp_path / "text"), "--data", str(lm_data)])
    assert status == 2
    assert re.search(r"SENTENCES: need at most 4 tokens .* got 5 in line 2", capsys.readouterr().err)
    arguments = [str(tmp_path / "checkpoint_last.pt"), str(tmp_path / "text"), "--data", str(lm_data)]
    assert main(["score", *arguments, "--stream"]) == 2
    message = r"--stream: needs a model that carries its state over, .* of fairseq_tiedemb; got Transformer"
    assert re.search(message, capsys.readouterr().err)
