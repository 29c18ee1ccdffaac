"""The fields of many lines at once: where they are, and which numbers and words.

Eight bytes of a field are one integer, the first byte the lowest, so that each step of numpy treats all fields.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Reals = NDArray[np.float64]
Eights = NDArray[np.uint64]
EIGHT_SPACES = 0x2020202020202020
# The first j of eight bytes, for j from 0 to 8.
FIRST = np.array([(1 << 8 * j) - 1 for j in range(9)], dtype=np.uint64)
# The text of 0, whose bytes subtracted leave digits of 0 to 9 and 0 for the point, and what takes others above 127.
ZEROS = ((0x3030303030302E30, 0x7676767676767F76), (0x3030303030303030, 0x7676767676767676))
ABOVE_127 = 0x8080808080808080
# Of hashes: an odd number, whose bits are mixed.
MULTIPLIER = 0x9E3779B97F4A7C15


def index_of(known: NDArray[Any], wanted: NDArray[Any]) -> Indices:
    """Returns the indices of values among known ones, which are in ascending order; -1 for those that are not there."""
    if not len(known):
        return np.full(len(wanted), -1)
    ids = np.searchsorted(known, wanted)
    ids[known.take(ids, mode="clip") != wanted] = -1
    return ids


class Fields:
    """The fields of whole lines, between ASCII white space as for bytes.split().

    Attributes:
        text: the lines' bytes, with white space around them, enough to read 16 bytes from where any field begins.
        begins: position in `text` of every field (F,).
        ends: position after every field (F,).
        firsts: every line's first field (L,).
        counts: every line's number of fields (L,).
    """

    def __init__(self, lines: bytes):
        lines = b"\n" + lines
        lines += b"" if lines.endswith(b"\n") else b"\n"
        self.text = np.frombuffer(lines + b" " * 16, dtype=np.uint8)
        is_space = (self.text == ord(" ")) | (self.text - np.uint8(9) < 5)
        edges = np.flatnonzero(is_space[1:] != is_space[:-1]) + 1
        self.begins, self.ends = edges[::2], edges[1::2]
        bounds = np.searchsorted(self.begins, np.flatnonzero(self.text == ord("\n")))
        self.firsts, self.counts = bounds[:-1], np.diff(bounds)
        self._eights: Eights = np.ndarray(len(self.text) - 7, "<u8", self.text, strides=(1,))

    def field(self, number: int) -> bytes:
        """Returns the bytes of a field."""
        return self.text[self.begins[number] : self.ends[number]].tobytes()

    def hashes(self, fields: Indices, multiplier: int) -> Eights:
        """Returns a number for every field, by its bytes: another one for every field of at most eight bytes."""
        hashes = np.zeros(len(fields), dtype=np.uint64)
        left, begins, ends = np.arange(len(fields)), self.begins[fields], self.ends[fields]
        while len(left):
            # Spaces count as 0, as what follows a field does: no byte of a field is one.
            eight = (self._eights[begins] ^ EIGHT_SPACES) & FIRST.take(ends - begins, mode="clip")
            mixed = (hashes[left] ^ eight) * multiplier
            hashes[left] = mixed ^ mixed >> 32
            longer = np.flatnonzero(ends - begins > 8)
            left, begins, ends = left[longer], begins[longer] + 8, ends[longer]
        return hashes

    def numbers(self, fields: Indices) -> Reals:
        """Returns float() of fields; nan for those that are no number.

        At most 15 digits, with a point after the first, are an integer below 2**53 over a power of 10, whose quotient
        has the rounding of float(). Other numbers, which are few, are read one by one.
        """
        negative = self.text[self.begins[fields]] == ord("-")
        begins = self.begins[fields] + negative
        lengths = self.ends[fields] - begins
        usual = (lengths > 0) & (lengths <= 16)
        value = np.zeros(len(fields), dtype=np.uint64)
        for half, (zeros, limits) in enumerate(ZEROS):
            digits = (self._eights[begins + 8 * half] ^ zeros) & FIRST.take(lengths - 8 * half, mode="clip")
            usual &= (digits | digits + limits) & ABOVE_127 == 0
            value = value * 10**8 + _of_digits(digits)
            if half == 0:
                value -= (digits & 0xFF) * (9 * 10**6)  # the point's place, after the first digit
        values = np.where(negative, -1.0, 1.0) * (value / 1e14)
        for at in np.flatnonzero(~usual).tolist():
            values[at] = _number(self.field(fields[at]))
        return values


def _of_digits(digits: Eights) -> Eights:
    """Returns the numbers of eight digits each, by way of numbers of two and of four."""
    twos = digits * (1 + (10 << 8)) >> 8 & 0x00FF00FF00FF00FF
    fours = twos * (1 + (100 << 16)) >> 16 & 0x0000FFFF0000FFFF
    return (fours * (1 + (10_000 << 32)) >> 32).view(np.uint64)


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


class Words:
    """Finds words by their hashes, which differ: for two words of one hash, the next odd multiplier is taken."""

    def __init__(self, words: Sequence[str]):
        text, every = Fields(" ".join(words).encode()), np.arange(len(words))
        for self.multiplier in itertools.count(MULTIPLIER, 2):
            hashes = text.hashes(every, self.multiplier)
            order = np.argsort(hashes)
            self.hashes = hashes[order]
            if (self.hashes[1:] > self.hashes[:-1]).all():
                break
        self.by_hash = np.append(order, -1)
        # By the first bits of a hash, the first word with them: four places a word at least, so mostly the only one.
        self.shift = 62 - len(words).bit_length()
        starts = np.arange(1 << 64 - self.shift, dtype=np.uint64) << self.shift
        self.starts = np.searchsorted(self.hashes, starts)

    def find(self, text: Fields, fields: Indices) -> Indices:
        """Returns the indices of fields among the words, -1 for those that are none."""
        hashes = text.hashes(fields, self.multiplier)
        found = self.starts[(hashes >> self.shift).view(np.int64)]
        others = np.flatnonzero(self.hashes.take(found, mode="clip") != hashes)
        found[others] = index_of(self.hashes, hashes[others])
        return self.by_hash[found]
