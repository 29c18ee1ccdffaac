"""Splits many lines into fields at once, and turns fields into numbers or into the indices of known words.

Eight bytes of a field are read as one integer, whose lowest byte is the first: a step of numpy treats eight of each.
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
# Masks of the first j of eight bytes, for j from 0 to 8.
FIRST = np.array([(1 << 8 * j) - 1 for j in range(9)], dtype=np.uint64)
# For the first eight bytes of a number, with its point, and for the second: "0.000000" and "00000000", with which an
# exclusive or turns digits into their values and the point into 0; and what lifts all other bytes above 127.
ZEROS = ((0x3030303030302E30, 0x7676767676767F76), (0x3030303030303030, 0x7676767676767676))
ABOVE_127 = 0x8080808080808080
# The first factor of hashes; it is odd, so that no two numbers of eight bytes have the same product.
MULTIPLIER = 0x9E3779B97F4A7C15


def index_of(known: NDArray[Any], wanted: NDArray[Any]) -> Indices:
    """Returns the index of each wanted value among the known ones, which ascend; -1 for a value that is not known."""
    if not len(known):
        return np.full(len(wanted), -1)
    ids = np.searchsorted(known, wanted)
    ids[known.take(ids, mode="clip") != wanted] = -1
    return ids


def first_true(mask: NDArray[np.bool_]) -> int | None:
    """Returns the index of the first True; None without one."""
    return int(np.argmax(mask)) if mask.any() else None


class Fields:
    """The fields of whole lines, which ASCII white space separates, as for bytes.split().

    Attributes:
        text: the bytes of the lines between white space, of which 16 bytes can be read from where any field begins.
        begins: position in `text` of every field (F,).
        ends: position after every field (F,).
        firsts: every line's first field (L,).
        counts: every line's number of fields (L,).
    """

    def __init__(self, lines: bytes):
        lines = b"\n" + lines
        lines += b"" if lines.endswith(b"\n") else b"\n"
        self.text = np.frombuffer(lines + b" " * 16, dtype=np.uint8)
        is_space = (self.text == ord(" ")) | (self.text - np.uint8(9) < 5)  # 9 to 13: \t, \n, \v, \f, \r
        edges = np.flatnonzero(is_space[1:] != is_space[:-1]) + 1
        self.begins, self.ends = edges[::2], edges[1::2]
        bounds = np.searchsorted(self.begins, np.flatnonzero(self.text == ord("\n")))
        self.firsts, self.counts = bounds[:-1], np.diff(bounds)
        self._eights: Eights = np.ndarray(len(self.text) - 7, "<u8", self.text, strides=(1,))

    def field(self, number: int) -> bytes:
        """Returns the bytes of a field."""
        return self.text[self.begins[number] : self.ends[number]].tobytes()

    def hashes(self, fields: Indices, multiplier: int) -> Eights:
        """Returns a 64-bit hash of every field; different fields of at most eight bytes have different hashes."""
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
        """Returns float() of the fields; nan for those that are no number.

        A number of at most 15 digits, with a point after the first, is an integer below 2**53 over a power of 10. Both
        are exact, so their quotient is rounded as float() does. Other numbers are few, and are read one by one.
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
            try:
                values[at] = float(self.field(fields[at]))
            except ValueError:
                values[at] = np.nan
        return values


def _of_digits(digits: Eights) -> Eights:
    """Returns the number that eight digits are: pairs of digits make numbers of two, these of four, these of eight."""
    twos = digits * (1 + (10 << 8)) >> 8 & 0x00FF00FF00FF00FF
    fours = twos * (1 + (100 << 16)) >> 16 & 0x0000FFFF0000FFFF
    return (fours * (1 + (10_000 << 32)) >> 32).view(np.uint64)


class Words:
    """Finds the indices of words by 64-bit hashes, with the first multiplier that gives all words different hashes.

    Bytes are not compared: a field of more than eight bytes that is none of V words is taken for one of them with a
    probability of V / 2**64, for a million words below one in ten million million.
    """

    def __init__(self, words: Sequence[str]):
        lines = Fields("\n".join(words).encode())
        # A word with white space in it, as a dict.txt may have, is no field.
        fitting = np.flatnonzero(lines.counts == 1)
        for self.multiplier in itertools.count(MULTIPLIER, 2):
            hashes = lines.hashes(lines.firsts[fitting], self.multiplier)
            order = np.argsort(hashes)
            self.hashes = hashes[order]
            if (self.hashes[1:] > self.hashes[:-1]).all():
                break
        self.by_hash = np.append(fitting[order], -1)
        # Place of the first word whose hash begins with some bits. There are four such beginnings a word at least, so a
        # word is mostly alone.
        self.shift = 62 - len(words).bit_length()
        starts = np.arange(1 << 64 - self.shift, dtype=np.uint64) << self.shift
        self.starts = np.searchsorted(self.hashes, starts)

    def find(self, text: Fields, fields: Indices) -> Indices:
        """Returns the index of each field among the words, -1 for a field that is none of them."""
        hashes = text.hashes(fields, self.multiplier)
        places = self.starts[(hashes >> self.shift).view(np.int64)]
        others = np.flatnonzero(self.hashes.take(places, mode="clip") != hashes)
        places[others] = index_of(self.hashes, hashes[others])
        return self.by_hash[places]
