"""The fields of many lines at once: where they are, and which numbers and words.

Eight bytes of a field are one integer, the first byte the lowest, so that each step of numpy treats all fields.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .counts import Indices, Reals, index_of

Eights = NDArray[np.uint64]
EIGHT_SPACES = 0x2020202020202020
# The first j of eight bytes, for j from 0 to 8.
FIRST = np.array([(1 << 8 * j) - 1 for j in range(9)], dtype=np.uint64)
# The text of 0, whose bytes subtracted leave digits of 0 to 9 and 0 for the point, and what takes others above 127.
ZEROS = ((0x3030303030302E30, 0x7676767676767F76), (0x3030303030303030, 0x7676767676767676))
ABOVE_127 = 0x8080808080808080


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

    def pieces(self, fields: Indices, number: int) -> Eights:
        """Returns eight bytes of every field, from byte 8 `number` on; 0 after its end, and in no other place."""
        begins = self.begins[fields] + 8 * number
        return (self._eights[begins] ^ EIGHT_SPACES) & FIRST.take(self.ends[fields] - begins, mode="clip")

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
    return fours * (1 + (10_000 << 32)) >> 32


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


class WordIndex:
    """Finds the indices of words by pieces of eight bytes, as ``look_up`` finds n-grams by words.

    A piece and those before it make a state. A word's last piece ends with 0, so that no word is the start of another.
    """

    def __init__(self, words: Sequence[bytes]):
        text = Fields(b" ".join(words))
        left, states = np.arange(len(words)), np.zeros(len(words), dtype=np.int64)
        self.levels: list[tuple[Eights, Indices, Indices]] = []
        while len(left):
            pieces, which = np.unique(text.pieces(left, len(self.levels)), return_inverse=True)
            keys, states = np.unique(states * len(pieces) + which, return_inverse=True)
            ids = np.full(len(keys) + 1, -1)
            ids[states] = left
            self.levels.append((pieces, keys, ids))
            going_on = (text.ends - text.begins)[left] >= 8 * len(self.levels)
            left, states = left[going_on], states[going_on]

    def find(self, text: Fields, fields: Indices) -> Indices:
        """Returns the indices of fields, -1 for those that are no words."""
        found = np.full(len(fields), -1)
        left, states = np.arange(len(fields)), found
        for number, (pieces, keys, ids) in enumerate(self.levels):
            which = index_of(pieces, text.pieces(fields[left], number))
            states = np.where(which < 0, -1, index_of(keys, states * len(pieces) + which)) if number else which
            found[left] = ids[states]
            going_on = np.flatnonzero((text.ends - text.begins)[fields[left]] >= 8 * (number + 1))
            left, states = left[going_on], states[going_on]
        found[left] = -1
        return found
