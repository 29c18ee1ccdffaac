"""Word similarity: Spearman's correlation, with its interval, of cosines with human scores of word pairs.

Source: Press & Wolf 2016, section 4.1, tables 2 and 3.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_tiedemb.checkpoints.text import read_lines
from fairseq_tiedemb.vectors.word_table import WordTable, unit_rows

NORMAL_95 = 1.959963984540054  # two-sided


class PairSet(NamedTuple):
    """Word pairs in lower case with a human score each; its name is the file's. A repeated pair counts again."""

    name: str
    pairs: list[tuple[str, str]]
    scores: np.ndarray


class Agreement(NamedTuple):
    """The result of a set of pairs; by table, Spearman's rho, and how many pairs have both words in it."""

    name: str
    used: int  # scored pairs, the same for every table
    total: int
    rhos: list[float]
    with_both: list[int]


def read_pairs(path: Path) -> PairSet:
    """Reads ``word word score`` lines; further fields, empty lines and lines that begin with # are ignored."""
    pairs, scores = [], []
    for number, line in read_lines(path, flag="--sets"):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            first, second, score = line.lower().split()[:3]
            scores.append(float(score))
        except ValueError:
            scores.append(math.nan)
        if not math.isfinite(scores[-1]):
            needs, got = "two words and a number per line", f"{line.rstrip()[:60]!r} in line {number} of {path}"
            use = "word, word, score and no header; of SimLex-999, tail -n +2 | cut -f1,2,4"
            raise ValueError(f"--sets: needs {needs}; got {got}. Use {use}.")
        pairs.append((first, second))
    if not pairs:
        raise ValueError(f"--sets: needs at least one pair of words; got {path}, which has none. Use another.")
    return PairSet(path.stem, pairs, np.array(scores))


def agreement(tables: Sequence[WordTable], pairs: PairSet, *, missing_as_zero: bool = False) -> Agreement:
    """Computes Spearman's rho, with mean ranks for ties, between human scores and every table's cosines.

    A pair of which a table lacks a word is left out for all tables, or, with `missing_as_zero`, has cosine 0 there.
    """
    indexes = [table.folded() for table in tables]
    # The rows (n, 2) of the pairs' words in each table, -1 for a missing word.
    rows = [np.array([[index.get(word, -1) for word in pair] for pair in pairs.pairs]) for index in indexes]
    has_both = [np.all(rows_n2 >= 0, axis=1) for rows_n2 in rows]
    used = np.logical_and.reduce(has_both) | missing_as_zero
    rhos = []
    for table, rows_n2, has in zip(tables, rows, has_both, strict=True):
        first, second = (unit_rows(table.rows_VD[side].astype(np.float64)) for side in rows_n2[used].T)
        cosines = np.where(has[used], (first * second).sum(1), 0.0)
        rhos.append(spearman(pairs.scores[used], cosines.round(12)))  # equal ones differ in their last digits
    return Agreement(pairs.name, int(used.sum()), len(used), rhos, [int(has.sum()) for has in has_both])


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Computes Pearson's correlation of the mean ranks; nan for fewer than two values, or if all are equal."""
    from scipy.stats import rankdata  # which takes a moment to import

    ranks = [rankdata(values) for values in (first, second)]
    a, b = (rank - (len(rank) + 1) / 2 for rank in ranks)
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else math.nan


def interval(rho: float, count: int) -> tuple[float, float]:
    """Computes the 95% confidence interval of Spearman's rho: tanh(atanh rho -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3))).

    It is nan for rho -1 and 1, where Fisher's z is infinite, and for fewer than 4 pairs of values (`count`, n).

    Source: Bonett & Wright 2000, Psychometrika 65, eq. 6 (Fisher's z with the variance of ranks).
    """
    if math.isnan(rho) or abs(rho) >= 1 or count < 4:
        return math.nan, math.nan
    half = NORMAL_95 * math.sqrt((1 + rho**2 / 2) / (count - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)
