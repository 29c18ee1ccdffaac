"""Spearman's rho between the cosines of word pairs in two tables.

rho is 1 if two tables rank all word pairs by similarity in the same order; their widths may differ. All tables are
compared on the words that every table has, matched by name, without <s> and <pad> of checkpoints. Time grows with the
square of the number of words; memory does not. Source: Press & Wolf 2016, table 4.
"""

import argparse
import math

from fairseq_tiedemb.cli._options import add_number
from fairseq_tiedemb.cli._tables import add_tables, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tables(parser)
    add_number(parser, "--most-frequent", "compare only the first N common words, in the order of the first TABLE")


def run(arguments: argparse.Namespace) -> None:
    """Prints rho of every two tables."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.correlation import cosine_correlation
    from fairseq_tiedemb.vectors.word_table import common_words, legend, unit_rows

    tables = read_tables(arguments)
    names = ", ".join(table.name for table in tables)
    if len(tables) < 2:
        raise ValueError(f"TABLE: needs 2 at least; got {len(tables)}, {names}. Use another beside it.")
    words = common_words(tables)[: arguments.most_frequent]
    if len(words) < 3:
        flag = "--most-frequent" if arguments.most_frequent in (1, 2) else "TABLE"
        raise ValueError(f"{flag}: needs tables with 3 words in common; got {len(words)} for {names}. Use others.")
    rho = cosine_correlation([unit_rows(table.rows_VD[[table.index[word] for word in words]]) for table in tables])
    marks, lines = legend(tables)
    rows = [["rho", *marks[1:]]]
    for number, mark in enumerate(marks[:-1], start=1):
        cells = ["-" if math.isnan(value) else f"{value:.3f}" for value in rho[number - 1, number:]]
        rows.append([mark, *[""] * (number - 1), *cells])
    print("\n".join([*lines, f"{len(words):,} words, {math.comb(len(words), 2):,} pairs", *aligned(rows)]))
