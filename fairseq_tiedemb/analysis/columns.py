"""Tables of text."""

from collections.abc import Sequence
from itertools import pairwise

RANKS = (10, 100, 1_000, 10_000, 100_000)


def bands_of_ranks(count: int) -> list[tuple[int, int]]:
    """Bands of words by rank of frequency, as (first, end) from 0 on: the 10 most frequent, the 90 after them, ...

    Args:
        count: of the words.
    """
    return list(pairwise([0, *(rank for rank in RANKS if rank < count), count]))


def aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns, the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for first, *row in zip(*columns, strict=True):
        cells = [cell.rjust(width) for cell, width in zip(row, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines
