"""Tables as aligned text, and bands of frequency ranks."""

from collections.abc import Sequence
from itertools import pairwise

RANKS = (10, 100, 1_000, 10_000, 100_000)


def bands_of_ranks(count: int) -> list[tuple[int, int]]:
    """Splits `count` frequency ranks, from 0, into bands (first, end): (0, 10), (10, 100), (100, 1000), ..."""
    return list(pairwise([0, *(rank for rank in RANKS if rank < count), count]))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats rows of cells as lines of text; the first column is left-aligned, the others right-aligned."""
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], widths)]) for row in rows]
    return [line.rstrip() for line in lines]
