"""Spearman's rho between people's scores and cosines of words.

A set is a text file, two words and a score a line (SimLex-999, MEN, ...). Letters' case does not count. All tables are
measured on the same pairs, those that every one of them has; how many that is of all is printed. The 95% intervals are
of Fisher's z with the variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000): what the choice of pairs leaves open,
not what another training would give. Source: Press & Wolf 2016, tables 2 and 3.
"""

import argparse
import math
from pathlib import Path

from fairseq_tiedemb.cli._tables import add_tables, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds tables and sets."""
    add_tables(parser)
    parser.add_argument("--sets", nargs="+", type=Path, required=True, metavar="FILE", help="`word word score` a line")
    parser.add_argument(
        "--missing-as-zero",
        action="store_true",
        help="count pairs that a table lacks, with the cosine 0: another number than without; says how many it has",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints rho and interval of each set and table."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.ranks import interval
    from fairseq_tiedemb.vectors.similarity import agreement, read_pairs
    from fairseq_tiedemb.vectors.word_table import legend

    sets = [read_pairs(path) for path in arguments.sets]
    tables = read_tables(arguments)
    marks, lines = legend(tables)
    columns = [["set"], ["pairs"], ["of"], *([mark] for mark in marks)]
    for each in sets:
        found = agreement(tables, each, missing_as_zero=arguments.missing_as_zero)
        cells = [found.name, f"{found.used:,}", f"{found.total:,}"]
        for rho, has in zip(found.rhos, found.found, strict=True):
            low, high = interval(rho, found.used)
            bounds = "-" if math.isnan(low) else f"{low:.2f} to {high:.2f}"
            cell = "-" if math.isnan(rho) else f"{rho:.3f} ({bounds})"
            cells.append(f"{cell}, has {has:,}" if arguments.missing_as_zero else cell)
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
    print("\n".join([*lines, *aligned(columns)]))
    return 0
