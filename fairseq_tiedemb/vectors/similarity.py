"""Word similarity: do cosines of vectors rank pairs of words as people do?

Source: Press & Wolf 2016, section 4.1, tables 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairseq_tiedemb.vectors.ranks import spearman
from fairseq_tiedemb.vectors.word_table import WordTable, unit_rows


@dataclass(frozen=True)
class PairSet:
    """Pairs of words that people have scored.

    Attributes:
        name: of the file, without its extension.
        pairs: in lower case; a pair that the file has twice counts twice.
        scores: of people.
    """

    name: str
    pairs: list[tuple[str, str]]
    scores: np.ndarray


@dataclass(frozen=True)
class Agreement:
    """How the tables rank one set.

    Attributes:
        name: of the set.
        used: pairs that count, the same ones for every table.
        total: pairs of the set.
        rhos: Spearman's rho of each table.
        found: pairs of which each table has both words.
    """

    name: str
    used: int
    total: int
    rhos: list[float]
    found: list[int]


def read_pairs(path: Path) -> PairSet:
    """Reads ``word word score`` a line; what follows does not count, nor do empty lines and those that begin with #.

    Raises:
        ValueError: naming the line that is something else, or if there is none at all.
    """
    pairs, scores = [], []
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = line.split()
            try:
                score = float(fields[2])
                if not np.isfinite(score):
                    raise ValueError
            except (IndexError, ValueError):
                raise ValueError(
                    f"--sets: needs two words and a number a line; got {line[:60]!r} in line {number} of {path}. Use "
                    "word, word and score, with white space between."
                ) from None
            pairs.append((fields[0].lower(), fields[1].lower()))
            scores.append(score)
    except UnicodeDecodeError as error:
        raise ValueError(f"--sets: needs text in UTF-8; got {path} ({error}). Use iconv -f LATIN1 -t UTF-8.") from None
    except OSError as error:
        raise ValueError(f"--sets: needs a file; got {path} ({error.strerror}). Use another path.") from None
    if not pairs:
        raise ValueError(f"--sets: needs a pair of words at least; got {path}, which has none. Use another.")
    return PairSet(path.stem, pairs, np.array(scores))


def agreement(tables: Sequence[WordTable], pairs: PairSet, *, missing_as_zero: bool = False) -> Agreement:
    """Spearman's rho, with mean ranks for ties, between people's scores and each table's cosines.

    Args:
        tables: each may have words of its own.
        pairs: the set.
        missing_as_zero: count all pairs, with the cosine 0 in the tables that lack a word; else only those pairs count
            that every table has, so that all are measured on the same.
    """
    rows = [_rows_of_pairs(table, pairs) for table in tables]
    found = [(each >= 0).all(1) for each in rows]
    used = np.logical_and.reduce(found) | missing_as_zero
    rhos = [spearman(pairs.scores[used], _cosines(table, each[used])) for table, each in zip(tables, rows, strict=True)]
    return Agreement(pairs.name, int(used.sum()), len(used), rhos, [int(each.sum()) for each in found])


def _rows_of_pairs(table: WordTable, pairs: PairSet) -> np.ndarray:
    """Rows (n, 2) of the words, -1 for those that the table lacks."""
    index = table.folded()
    return np.array([[index.get(first, -1), index.get(second, -1)] for first, second in pairs.pairs])


def _cosines(table: WordTable, rows_n2: np.ndarray) -> np.ndarray:
    first, second = (unit_rows(table.rows_VD[rows_n2[:, side]].astype(np.float64)) for side in (0, 1))
    return np.where((rows_n2 >= 0).all(1), (first * second).sum(1), 0.0)
