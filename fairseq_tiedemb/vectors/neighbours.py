"""The nearest neighbours of a word."""

import numpy as np

from fairseq_tiedemb.vectors.word_table import WordTable, unit_rows


def nearest(table: WordTable, word: str, count: int) -> list[tuple[str, float]]:
    """Returns the `count` words with the highest cosines, highest first, without the word itself."""
    row = table.row(word)
    units = unit_rows(table.rows_VD)
    cosines = units @ units[row]
    cosines[row] = -np.inf
    rows = np.argsort(-cosines, kind="stable")[: min(count, len(table.words) - 1)]
    return [(table.words[near], float(cosines[near])) for near in rows]
