"""Do tables hold the same words similar? Spearman's rho of the cosines of all pairs of words.

Source: Press & Wolf 2016, section 4.1, table 4.
"""

from collections.abc import Iterator, Sequence

import numpy as np

# Cosines are rounded to multiples of 2^-21, the precision of a sum in float32, so that there are 2^22 + 1 of them.
STEPS = 2**21
VALUES = 2 * STEPS + 1
BLOCK = 2**22  # cosines of a table that are in memory at a time


def cosine_correlation(tables: Sequence[np.ndarray], *, block: int = BLOCK) -> np.ndarray:
    """Spearman's rho, with mean ranks for ties, between the cosines of all pairs of rows i < j of each two tables.

    Two passes: the first counts how often each (rounded) cosine comes, which gives each its mean rank, and the sums of
    squares; the second adds the products of ranks. Memory is a block and the counts, whatever the number of words.
    Rounding changes rho by less than 1e-6 where cosines spread by 1e-3 (standard deviation) or more. Where they are all
    but equal, float32 knows less: with a spread of 1e-5, 1e-5.

    Args:
        tables: k of them, unit rows in float32, of the same words in the same order; their widths may differ.
        block: cosines at a time.

    Returns:
        rho (k, k); nan for fewer than three words, or where all cosines of a table are equal.
    """
    counts = np.zeros((len(tables), VALUES), np.int64)
    for found in _pairs(tables, block):
        for count, values in zip(counts, found, strict=True):
            count += np.bincount(values, minlength=VALUES)
    ranks = [_centred_ranks(count) for count in counts]
    products = np.zeros((len(tables), len(tables)))
    for found in _pairs(tables, block):
        ranked = [rank[values] for rank, values in zip(ranks, found, strict=True)]
        products += [[first @ second for second in ranked] for first in ranked]
    scale = np.sqrt(np.outer(products.diagonal(), products.diagonal()))
    return np.divide(products, scale, out=np.full_like(products, np.nan), where=scale > 0)


def _centred_ranks(counts: np.ndarray) -> np.ndarray:
    """The mean rank of each value less the mean of all ranks."""
    return np.cumsum(counts) - (counts - 1) / 2 - (counts.sum() + 1) / 2


def _pairs(tables: Sequence[np.ndarray], block: int) -> Iterator[list[np.ndarray]]:
    """The rounded cosines of all pairs of words in each table, block by block, as numbers in [0, VALUES)."""
    words, start = len(tables[0]), 0
    while start < words:
        stop = min(words, start + max(1, block // (words - start)))
        # Rows of the block with each other, i < j, and with all that follow.
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
