"""A table of vectors and its words."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class WordTable:
    """Vectors of words.

    Attributes:
        name: where they are from, for headings.
        words: V of them, each once, the most frequent first where the source has them so.
        rows_VD: float32, finite.
        untrained: words of the source that are not here, because training left them out and their rows say nothing.
    """

    name: str
    words: list[str]
    rows_VD: np.ndarray
    untrained: int = 0

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def row(self, word: str) -> int:
        """The row of a word as it is, or else in another case.

        Raises:
            ValueError: if the table has neither.
        """
        row = self.index.get(word)
        if row is None:
            row = self.folded().get(word.lower())
        if row is None:
            use = ", ".join(difflib.get_close_matches(word, self.words, n=3)) or "another"
            raise ValueError(f"--words: needs words that {self.name} has; got {word!r}. Use {use}.")
        return row

    def folded(self, count: int | None = None) -> dict[str, int]:
        """The row of each word in lower case.

        Of words that differ in case alone the one in lower case counts, or else the first, which is the most frequent.

        Args:
            count: only the first rows.
        """
        found: dict[str, int] = {}
        for row, word in enumerate(self.words[:count]):
            lower = word.lower()
            if lower == word:
                found[lower] = row
            else:
                found.setdefault(lower, row)
        return found

    def describe(self) -> str:
        """Name and size."""
        size, width = self.rows_VD.shape
        without = f", without {self.untrained:,} that training left out" if self.untrained else ""
        return f"{self.name}: {size:,} words, {width} wide{without}"


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Rows (*, D) divided by their norms, in their precision; rows of zeros stay."""
    # einsum and divide convert a part at a time, so that there is never a copy in float64.
    norms = np.sqrt(np.einsum("...d,...d->...", rows, rows, dtype=np.float64))[..., None]
    return np.divide(rows, np.where(norms > 0, norms, 1.0), out=np.empty_like(rows), casting="same_kind")


def common_words(tables: Sequence[WordTable]) -> list[str]:
    """The words that all tables have, in the order of the first."""
    return [word for word in tables[0].words if all(word in other.index for other in tables[1:])]


def legend(tables: Sequence[WordTable]) -> tuple[list[str], list[str]]:
    """A mark for each table, ``[1]``, and the lines that say what they stand for."""
    marks = [f"[{number}]" for number in range(1, len(tables) + 1)]
    return marks, [f"{mark} {table.describe()}" for mark, table in zip(marks, tables, strict=True)]
