"""Modified Kneser-Ney, what n-grams come from without options: discounts, ARPA files, the command."""

import errno
import math
from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.ngram import BackoffModel, SmoothedModel, Vocabulary, arpa
from fairseq_tiedemb.ngram.smoothing import FALLBACK_DISCOUNTS, discounts

from .ngram.oracle import Oracle
from .ngram.texts import Gram, distribution, histories, random_text, read_text


def trained(folder: Path, text: str, order: int) -> tuple[Vocabulary, SmoothedModel]:
    vocabulary, tokens = read_text(folder, text)
    return vocabulary, SmoothedModel(tokens, order, vocabulary.size)


def test_an_order_longer_than_any_sentence(tmp_path):
    text = random_text(seed=12)
    vocabulary, model = trained(tmp_path, text, 12)
    oracle = Oracle(text, 12, "modified-kneser-ney")
    sizes = [sum(len(gram) == n for gram in oracle.counts) for n in range(2, 13)]
    assert [len(keys) for keys in model.keys[1:]] == sizes
    for history in histories(text, 12)[::10]:
        probs = distribution(model, vocabulary, history)
        assert probs == pytest.approx({w: oracle.probability(w, history) for w in probs}, rel=1e-12, abs=0)
        assert math.fsum(probs.values()) == pytest.approx(1, abs=1e-13)


def test_most_orders_of_the_tests_determine_their_discounts(tmp_path):
    """So that the equations are tested with them, and with the fallback."""
    _, model = trained(tmp_path, random_text(seed=5, sentences=300), order=5)
    assert 0 < len(model.fallbacks) < 4
    oracle = Oracle(random_text(seed=5, sentences=300), 5, "modified-kneser-ney")
    for n, found in enumerate(model.discounts, start=1):
        assert found == pytest.approx(tuple(oracle.three_discounts(n)), rel=1e-12)
        assert (found == FALLBACK_DISCOUNTS) == (n in model.fallbacks)


def test_histories_end_at_the_start_of_their_sentence(tmp_path):
    vocabulary, model = trained(tmp_path, random_text(seed=10), order=4)
    one, two = (read_text(tmp_path, text, vocabulary)[1] for text in ("a b c\n", "b a\na b c\n"))
    np.testing.assert_array_equal(model.probabilities(one), model.probabilities(two)[-len(one) :])


# n_1 ... n_4, and what they give
COUNTS_OF_COUNTS = [
    ((8, 4, 2, 1), (0.5, 1.25, 2.0)),  # by hand: Y = 8 / 16
    ((0, 4, 2, 1), None),
    ((8, 0, 2, 1), None),
    ((8, 4, 0, 1), None),
    ((8, 4, 2, 0), None),
    ((1, 1, 100, 1), None),  # D(2) = 2 - 3 / 3 * 100
    ((8, 4, 2, 3), None),  # D(3 and more) = 3 - 4 / 2 * 3 / 2 = 0: would leave nothing for words not seen
    ((0, 0, 0, 0), None),
]


@pytest.mark.parametrize(("numbers", "expected"), COUNTS_OF_COUNTS)
def test_discounts(numbers, expected):
    counts = np.repeat([1, 2, 3, 4, 5, 9], [*numbers, 3, 2])
    np.random.default_rng(1).shuffle(counts)
    assert discounts(counts) == expected


def arpa_tables(path: Path) -> tuple[list[int], dict[Gram, float], dict[Gram, float]]:
    """Numbers of n-grams in the header, and base-10 logarithms of probabilities and backoff weights."""
    header, *sections = path.read_text(encoding="utf-8").removesuffix("\n\\end\\\n").split("\n\\")
    sizes = [int(line.partition("=")[2]) for line in header.splitlines()[1:] if line]
    logs, backoffs = {}, {}
    for n, section in enumerate(sections, start=1):
        title, *lines = section.strip().splitlines()
        assert title == f"{n}-grams:"
        assert len(lines) == sizes[n - 1]
        for line in lines:
            log, gram, *backoff = line.split("\t")
            logs[tuple(gram.split(" "))] = float(log)
            assert len(gram.split(" ")) == n
            assert len(backoff) == (n < len(sizes))
            backoffs[tuple(gram.split(" "))] = float(backoff[0]) if backoff else 0.0
    return sizes, logs, backoffs


def test_an_arpa_file_says_what_the_model_says(tmp_path, monkeypatch):
    """Evaluated as readers of such files do: the longest n-gram there is, and the weights of those that are not."""
    vocabulary, model = trained(tmp_path, random_text(seed=11), order=4)
    monkeypatch.setattr(arpa, "ARPA_CHUNK", 7)
    assert cli.main(["ngram", str(tmp_path / "train.txt"), "--order", "4", "--arpa", str(tmp_path / "out.arpa")]) == 0
    sizes, logs, backoffs = arpa_tables(tmp_path / "out.arpa")
    assert sizes == [len(keys) for keys in model.keys]
    assert logs["<s>",] == -99
    assert backoffs["</s>",] == 0  # nothing follows

    def log10(word: str, history: Gram) -> float:
        if (*history, word) in logs:
            return logs[*history, word]
        return backoffs.get(history, 0.0) + log10(word, history[1:])

    for history in histories(random_text(seed=11), 4)[::3]:
        for word, prob in distribution(model, vocabulary, history).items():
            assert log10(word, history) == pytest.approx(math.log10(prob), abs=2e-8)  # nine digits are written


def table_rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()[2:-1]]


def test_the_command_prints_what_was_counted_and_a_line_a_text(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    train = random_text(seed=12) + "<unk> a\n"
    lines = train.splitlines(keepends=True)
    # A blank line is a sentence, as for fairseq-preprocess; several training texts are one.
    texts = {"train": train, "first": "".join(lines[:20]), "second": "".join(lines[20:])}
    for name, text in {**texts, "a": "a b <unk>\n\nc q\n", "b": "a"}.items():
        Path(name).write_text(text)
    outputs = []
    for names in (["train"], ["first", "second"]):
        outputs.append(cli("ngram", *names, "--test", "a", "b", "--order", "2").out)
    assert outputs[0].splitlines()[:-1] == outputs[1].splitlines()[:-1]
    oracle = Oracle(train, 2, "modified-kneser-ney")
    types, bigrams = len({*train.split()}) + 1, sum(len(gram) == 2 for gram in oracle.counts)
    assert outputs[0].splitlines()[0] == (
        f"modified Kneser-Ney, order 2: {len(train.split()) + 61} tokens, {types} types with </s>; "
        f"n-grams by order: {types + 1}, {bigrams}"
    )
    rows = table_rows(outputs[0])
    assert [(row[0], row[1], row[3]) for row in rows] == [("8", "2", "a"), ("2", "0", "b")]
    assert rows[1][2] == f"{oracle.perplexity('a', 2):.2f}"


def test_a_dictionary_turns_other_words_into_unk(tmp_path, cli):
    (tmp_path / "dict.txt").write_text("a 100\nb 90\nc 80\nd 70 #fairseq:overwrite\n")
    texts = {"train": random_text(seed=14), "test": random_text(seed=15) + "unheard of\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        by_hand = [[word if word in "abcd" else "<unk>" for word in line.split()] for line in text.splitlines()]
        (tmp_path / f"{name}.unk").write_text("".join(" ".join(words) + "\n" for words in by_hand))
    rows = []
    for ending, more in (("", ["--dict", str(tmp_path / "dict.txt")]), (".unk", [])):
        train, test = (str(tmp_path / f"{name}{ending}") for name in texts)
        rows.append(table_rows(cli("ngram", train, "--test", test, *more).out)[0][:3])
    assert rows[0] == rows[1]
    assert int(rows[0][1]) > 2


def test_a_fallback_of_the_discounts_is_said(tmp_path, cli):
    (tmp_path / "train.txt").write_text("a b\n")
    err = cli("ngram", tmp_path / "train.txt", "--order", "2").err
    assert err.splitlines() == [
        f"fairseq-tiedemb ngram: too few different counts to estimate the discounts of order {n}, as is usual of "
        "small texts: taking 0.5 1.0 1.5"
        for n in (1, 2)
    ]


REFUSED = [
    (["good", "--order", "0"], "--order: needs a whole number from 1 to 100; got 0. Use 5."),
    (["good", "--order", "1000000"], "--order: needs a whole number from 1 to 100; got 1000000. Use 5."),
    (["good", "--smoothing", "katz", "--katz-k", "1000000000"], "whole number from 1 to 10000; got 1000000000. Use 7"),
    (["missing"], "TRAIN: needs a text file; got missing (No such file or directory)"),
    (["."], "TRAIN: needs a text file; got . (Is a directory)"),
    (["good", "empty"], "TRAIN: needs text; got empty, which is empty"),
    (["good", "--test", "good", "empty"], "--test: needs text; got empty, which is empty"),
    (["good", "--test", "missing"], "--test: needs a text file; got missing"),
    (["good", "--test", "unknown"], "which has no <unk> to stand for others; got 'zebra' in line 2 of unknown. Use --"),
    (["good", "marked"], "TRAIN: needs text without <s> and </s>, which are added to each line; got </s> in line 1"),
    (["good", "--test", "marked"], "--test: needs text without <s> and </s>, which are added to each line; got </s>"),
    (["latin"], "TRAIN: needs UTF-8 text; got latin ('utf-8' codec"),
    (["good", "--dict", "missing"], "--dict: needs a text file; got missing"),
    (["good", "--dict", "counts"], "--dict: needs lines `word count`; got 'a zebra' in line 2 of counts"),
    (["good", "--dict", "blank"], "--dict: needs lines `word count`; got '' in line 1 of blank"),
    (["good", "--dict", "spaced", "--arpa", "out"], "--arpa: needs words without spaces; got 'New York' of --dict."),
    (["good", "--arpa", "none/out"], "--arpa: needs a folder that exists; got none. Use mkdir -p none."),
    (["--read-arpa", "good", "--order", "0"], "--order: needs TRAIN, to estimate a model from; got none"),
    (["good", "--held-out", "unknown", "--interpolate", "/dev/null"], "needs a file, read twice; got /dev/null, which"),
    (["good", "--arpa", "."], "--arpa: needs the name of a file; got ., which is none"),
    (["good", "--arpa", "/dev/stdout"], "--arpa: needs the name of a file; got /dev/stdout, which is none"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_is_refused(words, message, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    files = {"good": "a b\n", "empty": "", "unknown": "a b\na zebra\n", "counts": "a 1\na zebra\n", "blank": "\n"}
    for name, text in {**files, "marked": "a </s>\n", "spaced": "New York 3\n"}.items():
        Path(name).write_text(text)
    Path("latin").write_bytes("é\n".encode("latin-1"))
    assert message in cli("ngram", *words, status=2).err


def test_a_byte_order_mark_is_in_no_word(tmp_path):
    for name, mark in (("marked", "\ufeff"), ("plain", "")):
        (tmp_path / name).write_text(f"{mark}a b\nc\n", encoding="utf-8")
        (tmp_path / f"{name}.dict").write_text(f"{mark}a 1\nb 1\n", encoding="utf-8")
    read = [Vocabulary().read([tmp_path / name], flag="TRAIN").tolist() for name in ("marked", "plain")]
    assert read[0] == read[1]
    assert list(Vocabulary.from_dictionary(tmp_path / "marked.dict"))[0] == "a"


def test_a_dictionary_without_words_is_refused(tmp_path):
    (tmp_path / "dict.txt").write_text("")
    with pytest.raises(ValueError, match=r"--dict: needs words; got .*dict\.txt, which is empty\. Use the dict"):
        Vocabulary.from_dictionary(tmp_path / "dict.txt")


def test_an_arpa_file_that_cannot_be_finished_leaves_the_old_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "train.txt").write_text("a b\n")
    (tmp_path / "out.arpa").write_text("old")

    def break_off(self, words, file):
        file.write("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(BackoffModel, "write_arpa", break_off)
    assert cli.main(["ngram", str(tmp_path / "train.txt"), "--arpa", str(tmp_path / "out.arpa")]) == 2
    message = f"{tmp_path}/out.arpa: needs a disk that takes the whole file; got an error of the system (No space left"
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.arpa", "train.txt"]
    assert (tmp_path / "out.arpa").read_text() == "old"


def test_an_order_that_no_sentence_has(tmp_path, cli):
    text = tmp_path / "text"
    text.write_text("a\nb\nc\n")
    for smoothing in ("witten-bell", "kneser-ney", "modified-kneser-ney", "absolute", "katz"):
        out = cli("ngram", text, "--test", text, "--order", "5", "--smoothing", smoothing).out
        assert 1 < float(table_rows(out)[0][2]) < 4
