"""ARPA text: out and in again, what others write, what is refused."""

import math
from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.ngram import SMOOTHINGS, BackoffModel, SmoothedModel, arpa

from ..crossing import crossed
from .texts import distribution, random_text, read_text

# As SRILM writes it: tabs, no weight where nothing follows, -99 for <s>, words in any order. With it by hand
#   p(b | a) = 0.5,  p(b | <s>) = gamma(<s>) p(b) = 0.5 * 0.2,  p(</s> | b) = p(</s>), for b has no weight
BY_HAND = """
Anything may stand before.

\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-0.3010299957\t</s>
-99\t<s>\t-0.3010299957
-0.5228787453\ta\t-0.1
-0.6989700043\tb

\\2-grams:
-0.3010299957\ta b
-0.1\t<s> a

\\end\\
"""


def written(folder: Path, text: str) -> Path:
    (folder / "in.arpa").write_text(text)
    return folder / "in.arpa"


@pytest.mark.parametrize(("separator", "end"), [("\t", "\n"), (" ", "\r\n"), (" \t ", " \n")])
def test_a_file_by_hand(separator, end, tmp_path):
    text = BY_HAND.replace("\t", separator).replace("\n\n\\end", "\n\\end").replace("\n", end)
    path = written(tmp_path, text.rstrip())
    vocabulary, model = BackoffModel.read_arpa(path, flag="--read-arpa")
    assert vocabulary.symbols() == ["<s>", "</s>", "a", "b"]
    assert model.order == 2
    after_a, after_start, after_b = (distribution(model, vocabulary, (word,)) for word in ("a", "<s>", "b"))
    assert after_a["b"] == pytest.approx(0.5)
    assert after_a["</s>"] == pytest.approx(10**-0.1 * 0.5)
    assert after_start["b"] == pytest.approx(0.5 * 0.2)
    assert after_b["</s>"] == pytest.approx(0.5)


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = written(tmp_path, "\ufeff" + BY_HAND.lstrip().removeprefix("Anything may stand before.\n\n"))
    assert BackoffModel.read_arpa(path, flag="--read-arpa")[1].order == 2


def test_weights_count_where_the_next_order_is_empty(tmp_path):
    grams = BY_HAND[BY_HAND.index("-0.3010299957\ta b") : BY_HAND.index("\n\\end")]
    path = written(tmp_path, BY_HAND.replace(grams, "").replace("ngram 2=2", "ngram 2=0"))
    vocabulary, model = BackoffModel.read_arpa(path, flag="--read-arpa")
    assert distribution(model, vocabulary, ("a",))["b"] == pytest.approx(10**-0.1 * 0.2)


def test_start_of_sentence_is_never_predicted_though_kenlm_writes_probability_one(tmp_path):
    path = written(tmp_path, BY_HAND.replace("-99\t<s>", "0\t<s>"))
    assert BackoffModel.read_arpa(path, flag="--read-arpa")[1].probs[0][0] == 0


@pytest.mark.parametrize("log", ["-99", "-inf", "-1e5"])
def test_what_cannot_be(log, tmp_path, cli):
    path = written(tmp_path, BY_HAND.replace("-0.6989700043\tb", f"{log}\tb"))
    (tmp_path / "text").write_text("b\n")
    assert cli("ngram", "--read-arpa", path, "--test", tmp_path / "text").out.splitlines()[2].split()[2] == "inf"


@pytest.mark.parametrize(
    ("weight", "value", "command"),
    [
        ("400", "2e+299", "--read-arpa in.arpa --test text"),
        ("1", "2", "--test text --held-out fine --interpolate in.arpa --interpolate fine.arpa"),
    ],
)
def test_what_is_no_probability(weight, value, command, tmp_path, monkeypatch, capsys):
    """By a weight of backing off that no text gives: the perplexity was 0.00."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, BY_HAND.replace("<s>\t-0.3010299957", f"<s>\t{weight}"))
    for name, text in {"text": "a b\nb\n", "fine": "a b\n", "fine.arpa": BY_HAND}.items():
        Path(name).write_text(text)
    assert cli.main(["ngram", *command.split()]) == 2
    flag = "--read-arpa" if "--read-arpa" in command else "--interpolate"
    message = (
        f"{flag}: needs probabilities of at most 1; got {value} for 'b' after '<s>' by the weights of in.arpa. Use"
    )
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("name", "cutoff"), crossed(SMOOTHINGS, [[1], [1, 2, 2, 1]]))
def test_out_and_in_again(name, cutoff, tmp_path, monkeypatch):
    vocabulary, tokens = read_text(tmp_path, random_text(seed=41, sentences=150) + "<unk> ü 𝄞\n")
    _, held_out = read_text(tmp_path, random_text(seed=42), vocabulary)
    model = SmoothedModel(tokens, 4, vocabulary.size, smoothing=name, cutoff=cutoff, held_out=held_out)
    monkeypatch.setattr(arpa, "ARPA_CHUNK", 7)
    with (tmp_path / "out.arpa").open("w") as file:
        model.write_arpa(vocabulary.symbols(), file)
    words, again = BackoffModel.read_arpa(tmp_path / "out.arpa", flag="--read-arpa")
    assert words.symbols() == vocabulary.symbols()
    for one, other in zip(model.keys, again.keys, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.log_probabilities(held_out).mean() == pytest.approx(model.log_probabilities(held_out).mean(), abs=1e-6)
    for history in ((), ("a", "b", "c"), ("<s>", "a"), ("ü", "a")):
        assert distribution(again, words, history) == pytest.approx(distribution(model, vocabulary, history), rel=1e-6)


def test_the_command_scores_with_a_file_and_writes_it_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, BY_HAND)
    Path("text").write_text("a b\n\n")
    assert cli.main("ngram --read-arpa in.arpa --test text --arpa out.arpa".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ARPA file in.arpa, order 2: 3 types with </s>; n-grams by order: 4, 2"
    log = math.log(10**-0.1) + math.log(0.5) + math.log(0.5) + math.log(0.5 * 0.5)  # a, b, </s>, and the blank line's
    assert lines[2].split()[:3] == ["4", "0", f"{math.exp(-log / 4):.2f}"]
    assert cli.main("ngram --read-arpa out.arpa --test text".split()) == 0
    assert capsys.readouterr().out.splitlines()[2] == lines[2]
    Path("text").write_text("a zebra\n")
    assert cli.main("ngram --read-arpa in.arpa --test text".split()) == 2
    message = "--test: needs the words of in.arpa, which has no <unk> to stand for others; got 'zebra' in line 1 of"
    assert message in capsys.readouterr().err


# What is replaced in BY_HAND, by what, and what is said of it.
BROKEN = [
    ("\\data\\", "\\date\\", r"needs the line \\data\\; got its end in line 18 of"),
    ("ngram 1=4\nngram 2=2\n", "", r"needs a line `ngram 1=COUNT`; got '\\\\1-grams:' in line 6 of"),
    ("ngram 2=2", "ngram 3=2", "needs a line `ngram 2=COUNT`; got 'ngram 3=2' in line 6 of"),
    ("ngram 1=4", f"ngram 1={'9' * 5000}", "needs a line `ngram 1=COUNT`; got 'ngram 1=9999"),
    ("ngram 1=4", "ngram 1=four", "needs a line `ngram 1=COUNT`; got 'ngram 1=four' in line 5 of"),
    ("\\1-grams:", "\\1-gram:", r"needs the line \\1-grams:; got '\\\\1-gram:' in line 8 of"),
    ("ngram 2=2", "ngram 2=3", r"3 lines `log10\(p\) 2 words \[log10\(weight\)\]`; got a blank one in line 17 of"),
    ("ngram 2=2", "ngram 2=1", r"needs the line \\end\\ after .* counts; got '-0.1\\t<s> a' in line 16 of"),
    ("\\end\\\n", "", r"needs the line \\end\\ after .*; got its end in line 17 of"),
    ("-0.1\t<s> a\n\n\\end\\\n", "", "needs 2 2-grams; got the end after 1 in line 15 of"),
    ("-0.1\t<s> a", "-0.1\t<s>", r"needs 2 lines `log10\(p\) 2 words .*; got '-0.1\\t<s>' in line 16 of"),
    ("-0.1\t<s> a", "-0.1\t<s> a b a", "got '-0.1.t<s> a b a' in line 16 of"),
    ("-0.1\t<s> a", "-0.1\t<s> c", "needs words that are among the 1-grams; got 'c' in line 16 of"),
    ("-0.1\t<s> a", "-0.1\ta b", "needs each n-gram once; got one again in line 16 of"),
    ("-0.6989700043\tb", "-0.6989700043\ta", "needs each n-gram once; got one again in line 12 of"),
    ("-0.1\t<s> a", "-0,1\t<s> a", "needs logarithms of at most 0; got '-0,1' in line 16 of"),
    ("a\t-0.1", "a\tx", "needs finite weights; got 'x' in line 11 of"),
    ("-0.1\t<s> a", "0.1\t<s> a", "needs logarithms of at most 0; got '0.1' in line 16 of"),
    ("-0.1\t<s> a", "nan\t<s> a", "needs logarithms of at most 0; got 'nan' in line 16 of"),
    ("a\t-0.1", "a\tinf", "needs finite weights; got 'inf' in line 11 of"),
    ("-99\t<s>\t-0.3010299957", "-99\tc", "needs <s> among the 1-grams; got none in line 12 of"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_broken_files(old, new, message, tmp_path):
    assert old in BY_HAND
    path = written(tmp_path, BY_HAND.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        BackoffModel.read_arpa(path, flag="--read-arpa")


def test_other_broken_files(tmp_path):
    text = BY_HAND.replace("ngram 2=2\n", "ngram 2=2\nngram 3=2\n")
    text = text.replace("\n\\end\\", "\n\\3-grams:\n-0.1 <s> a b\n-0.1 b a b\n\n\\end\\")
    no_bigrams = text.replace("ngram 2=2", "ngram 2=0").replace("-0.3010299957\ta b\n-0.1\t<s> a\n", "")
    path = tmp_path / "in.arpa"
    for content, message in (
        (None, "--read-arpa: needs an ARPA file; got .*in.arpa .No such file"),
        (text.encode(), "needs every history as an n-gram of its own; got 'b a' in line 21 of"),
        (no_bigrams.encode(), "needs every history as an n-gram of its own; got '<s> a' in line 18 of"),
        (BY_HAND.replace("b", "é").encode("latin-1"), "needs UTF-8; got another encoding .* in line 12 of"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            BackoffModel.read_arpa(path, flag="--read-arpa")


def test_kenlm_scores_as_we_do(tmp_path):
    kenlm = pytest.importorskip("kenlm")
    text = random_text(seed=45, sentences=200).replace("m", "<unk>")
    vocabulary, tokens = read_text(tmp_path, text)
    other = random_text(seed=46)
    for name in ("modified-kneser-ney", "katz"):
        model = SmoothedModel(tokens, 4, vocabulary.size, smoothing=name)
        with (tmp_path / "out.arpa").open("w") as file:
            model.write_arpa(vocabulary.symbols(), file)
        theirs = kenlm.Model(str(tmp_path / "out.arpa"))
        _, indices = read_text(tmp_path, other.replace("m", "<unk>"), vocabulary)
        found = model.log_probabilities(indices) / math.log(10)
        lines = other.replace("m", "<unk>").splitlines()
        expected = [score for line in lines for score, _, _ in theirs.full_scores(line)]
        np.testing.assert_allclose(found, expected, atol=2e-6)  # in single precision
