"""A table of word vectors with its words, and its form as text, word2vec's and GloVe's: ``word x_1 ... x_D`` a line."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TextIO

import numpy as np

from fairseq_tiedemb.checkpoints.word_vectors import read_word_vectors


@dataclass(frozen=True)
class WordTable:
    """Word vectors and their words."""

    name: str  # the origin, for headings
    words: list[str]  # V different words, the most frequent first if the source orders them so
    rows_VD: np.ndarray  # the vectors, float32, finite
    untrained: int = 0  # number of the source's words that training left out, whose rows are not in the table
    pieces: int = 0  # number of the source's entries that are pieces of words, whose rows are not in the table either
    dictionary: Path | None = None  # the file of the words, if the source has none

    @cached_property
    def index(self) -> dict[str, int]:
        """Maps words to rows."""
        return {word: row for row, word in enumerate(self.words)}

    def row(self, word: str) -> int:
        """Returns the row of a word, or else of the word in another case; ValueError if the table has neither."""
        row = self.index.get(word)
        if row is None:
            row = self.folded().get(word.lower())
        if row is None:
            use = ", ".join(difflib.get_close_matches(word, self.words, n=3)) or "another"
            raise ValueError(f"--words: needs words that {self.name} has; got {word!r}. Use {use}.")
        return row

    def folded(self, count: int | None = None) -> dict[str, int]:
        """Maps lower-case words to rows, over the first `count` rows.

        Of words that differ in case alone, the lower-case one counts, else the first, which is the most frequent.
        """
        words = self.words[:count]
        rows = {word.lower(): row for row, word in reversed([*enumerate(words)])}
        return rows | {word: row for row, word in enumerate(words) if word == word.lower()}

    def describe(self) -> str:
        """Returns name, number of words and width."""
        size, width = self.rows_VD.shape
        without = f", without {self.untrained:,} that training left out" if self.untrained else ""
        without += f", without {self.pieces:,} that are no whole words" if self.pieces else ""
        return f"{self.name}: {size:,} words, {width} wide{without}"


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Divides rows (*, D) by their norms, in their own precision; zero rows stay zero."""
    # einsum and divide convert in parts, so that no float64 copy of all rows is made.
    norms = np.sqrt(np.einsum("...d,...d->...", rows, rows, dtype=np.float64))[..., None]
    return np.divide(rows, np.where(norms > 0, norms, 1.0), out=np.empty_like(rows), casting="same_kind")


def nearest(table: WordTable, word: str, count: int) -> list[tuple[str, float]]:
    """Returns the `count` words with the highest cosines, highest first, without the word itself."""
    row, units = table.row(word), unit_rows(table.rows_VD)
    cosines = units @ units[row]
    cosines[row] = -np.inf
    rows = np.argsort(-cosines, kind="stable")[: min(count, len(table.words) - 1)]
    return [(table.words[near], float(cosines[near])) for near in rows]


def common_words(tables: Sequence[WordTable]) -> list[str]:
    """Returns the words that all tables have, in the first table's order."""
    return [word for word in tables[0].words if all(word in other.index for other in tables[1:])]


def legend(tables: Sequence[WordTable]) -> tuple[list[str], list[str]]:
    """Returns marks of the tables, ``[1]``, ``[2]``, ..., and the lines that explain them."""
    marks = [f"[{number}]" for number in range(1, len(tables) + 1)]
    return marks, [f"{mark} {table.describe()}" for mark, table in zip(marks, tables, strict=True)]


def read_vectors(path: Path) -> WordTable:
    """Reads word vectors by ``read_word_vectors``, with its errors."""
    vectors = read_word_vectors(path, flag="TABLE", kinds="a checkpoint, a safetensors file, or vectors as text")
    return WordTable(str(path), list(vectors), np.stack(list(vectors.values())))


def write_vectors(table: WordTable, file: TextIO) -> int:
    """Writes word2vec's text format, from which float32 is read back bit for bit.

    Returns the number of words left out: the format has no empty words and no words with spaces.
    """
    kept = [row for row, word in enumerate(table.words) if word.split() == [word]]
    width = table.rows_VD.shape[1]
    file.write(f"{len(kept)} {width}\n")
    numbers = " %.9g" * width
    for row in kept:
        file.write(f"{table.words[row]}{numbers % tuple(table.rows_VD[row].tolist())}\n")
    return len(table.words) - len(kept)
