"""Two lists crossed: each item of both in a quick case, and all pairs in the slow ones too."""

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def crossed(rows: Iterable[object], columns: Iterable[object]) -> list[ParameterSet]:
    """Parameters (row, column) of every pair; those that bring no row and no column anew are slow.

    Args:
        rows: taken in turn for the quick cases, beside
        columns: as many in turn, until the longer list has ended.
    """
    rows, columns = list(rows), list(columns)
    quick = {(turn % len(rows), turn % len(columns)) for turn in range(max(len(rows), len(columns)))}
    return [
        pytest.param(row, column, marks=() if (i, j) in quick else pytest.mark.slow)
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
    ]
