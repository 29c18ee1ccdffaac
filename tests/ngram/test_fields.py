"""Fields, numbers and words of many lines at once, beside bytes.split(), float() and a dictionary."""

import math
import random

import numpy as np
import pytest

from fairseq_tiedemb.ngram import BOS, EOS, Vocabulary, fields, text
from fairseq_tiedemb.ngram.fields import Fields, Words

ODD_NUMBERS = (
    "0 -0 5 -5. .5 -. - -- +0.5 -99 -12.5 1e-05 -4.3E-6 -inf nan x 0x1 1_0 1.2.3 1.-2 0.00000000000001 "
    "9.99999999999999 -9.999999999999999 -0.1234567890123456 1.23456789/ -0,5 1:5"
).split()


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def test_numbers_are_those_of_float() -> None:
    rng = random.Random(1)
    texts = ODD_NUMBERS + [f"{rng.uniform(-9, 1):.{rng.randint(1, 17)}{rng.choice('efg')}}" for _ in range(2000)]
    found = Fields("\t".join(texts).encode()).numbers(np.arange(len(texts)))
    expected = np.array(list(map(number, texts)))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("lines", [b"", b"a", b" a\r\n\n\tbc \x0b d\n", b"\n\x00 \x1c\x80\xff" + b"x" * 40])
def test_fields_are_those_of_split(lines: bytes) -> None:
    found = Fields(lines)
    assert [found.field(each) for each in range(len(found.begins))] == lines.split()
    assert found.counts.tolist() == [len(line.split()) for line in lines.splitlines(keepends=True) if lines]
    assert found.firsts.tolist() == np.cumsum([0, *found.counts])[:-1].tolist()


@pytest.mark.parametrize("multiplier", [1, fields.MULTIPLIER])
def test_words_that_differ_anywhere(multiplier: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the multiplier 1, the first two have one hash; a word with white space is no field of a text."""
    monkeypatch.setattr(fields, "MULTIPLIER", multiplier)
    words = ["a1234567b7654321", "b1234567a7654321", "ü", "\0", "\0\0", "two words"]
    words += [*("x" * n for n in range(1, 34)), *map(str, range(999))]
    index = Words(words)
    assert index.multiplier == (3 if multiplier == 1 else multiplier)
    known = [number for number, word in enumerate(words) if word.split() == [word]]
    asked = [*(words[number] for number in reversed(known)), "x" * 34, "two", "a1234567", "xü"]
    found = index.find(Fields(" ".join(asked).encode()), np.arange(len(asked)))
    assert found.tolist() == [*reversed(known), -1, -1, -1, -1]


@pytest.mark.parametrize("has_unknown", [True, False])
def test_a_text_is_read_as_by_split(has_unknown, tmp_path, monkeypatch) -> None:
    """By the way of few steps, and line by line where there is white space that bytes do not have."""
    monkeypatch.setattr(text, "LINES", 2)
    path = tmp_path / "text"
    content = "a  b\tlonger_than_8\r\n\n a\x0bb \n<unk>\na\x1cb\x85a\nab\nb\xa0a\u2028b ü\nab\n\na\x1fb\nb\n\nb a"
    path.write_bytes(content.replace("<unk>", "<unk> zebra" if has_unknown else "a").encode())
    lines = [line.split() for line in path.read_text(encoding="utf-8").split("\n")]
    words = ["b", "a", "ab", "longer_than_8", "ü", *["<unk>"] * has_unknown]
    vocabulary = Vocabulary({word: index for index, word in enumerate(words, start=2)})
    vocabulary.close()
    expected = [[BOS, *(vocabulary[word] for word in line), EOS] for line in lines]
    assert vocabulary.read([path, path], flag="TEXT").tolist() == 2 * sum(expected, [])
