"""Spearman's correlation between the pairwise word similarities of embedding tables.

Source: Press & Wolf 2016, section 4.1, table 4.
"""

from collections.abc import Iterator, Sequence

import numpy as np

# Cosines are rounded to multiples of 2^-21, the precision of a sum in float32: 2^22 + 1 values.
STEPS = 2**21
VALUES = 2 * STEPS + 1
BLOCK = 2**22  # cosines of a table in memory at a time


def cosine_correlation(tables: Sequence[np.ndarray], *, block: int = BLOCK) -> np.ndarray:
    """Computes Spearman's rho between every two tables' cosines of all word pairs i < j, with mean ranks for ties.

    The first pass counts the rounded cosines, which gives their mean ranks and the sums of squares; the second pass
    adds the products of ranks. Memory is one block of cosines and the counts. Rounding changes rho by less than 1e-6 if
    the cosines' standard deviation is 1e-3 or more; with 1e-5, float32 itself limits rho to 1e-5.

    The k tables have unit rows in float32, for the same words in the same order; widths may differ. Returns rho (k, k);
    nan for fewer than three words, or if all cosines of a table are equal.
    """
    counts = np.zeros((len(tables), VALUES), np.int64)
    for cosines in _pairs(tables, block):
        for count, values in zip(counts, cosines, strict=True):
            count += np.bincount(values, minlength=VALUES)
    # The mean rank of every value, minus the mean of all ranks.
    ranks = [np.cumsum(count) - (count - 1) / 2 - (count.sum() + 1) / 2 for count in counts]
    products = np.zeros((len(tables), len(tables)))
    for cosines in _pairs(tables, block):
        ranked = [rank[values] for rank, values in zip(ranks, cosines, strict=True)]
        products += [[first @ second for second in ranked] for first in ranked]
    scale = np.sqrt(np.outer(products.diagonal(), products.diagonal()))
    return np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0)


def _pairs(tables: Sequence[np.ndarray], block: int) -> Iterator[list[np.ndarray]]:
    """Yields blocks of word pairs: for each table, their rounded cosines as integers in [0, VALUES)."""
    words, start = len(tables[0]), 0
    while start < words:
        stop = min(words, start + max(1, block // (words - start)))
        # Pairs i < j within the block, then pairs of a row of the block and a later row.
        above = ~np.tri(stop - start, dtype=bool)
        yield [_rounded((rows[start:stop] @ rows[start:stop].T)[above]) for rows in tables]
        yield [_rounded((rows[start:stop] @ rows[stop:].T).ravel()) for rows in tables]
        start = stop


def _rounded(cosines: np.ndarray) -> np.ndarray:
    cosines *= STEPS
    np.rint(cosines, out=cosines)
    np.clip(cosines, -STEPS, STEPS, out=cosines)
    cosines += STEPS
    return cosines.astype(np.intp)
