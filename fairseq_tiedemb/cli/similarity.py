"""Spearman's rho between people's scores and cosines of words.

A set is a text file with two words and a score per line (SimLex-999, MEN, ...); case is ignored. All tables are
measured on the same pairs, those whose words every table has; the output shows how many. The 95% intervals use Fisher's
z with the variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000): they cover the choice of pairs, not of the
training seed. Source: Press & Wolf 2016, tables 2 and 3.
"""

import argparse
import math
from pathlib import Path

from fairseq_tiedemb.cli._tables import add_tables, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tables(parser)
    about = "`word word score` lines"
    parser.add_argument("--sets", nargs="+", action="extend", type=Path, required=True, metavar="FILE", help=about)
    about = "also count pairs with a missing word, with cosine 0, and print how many pairs a table has"
    parser.add_argument("--missing-as-zero", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Prints rho and its interval, by set and table."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.similarity import agreement, interval, read_pairs
    from fairseq_tiedemb.vectors.word_table import legend

    sets = [read_pairs(path) for path in arguments.sets]
    tables = read_tables(arguments)
    marks, lines = legend(tables)
    rows = [["set", "pairs", "of", *marks]]
    for pairs in sets:
        agreed = agreement(tables, pairs, missing_as_zero=arguments.missing_as_zero)
        rows.append([agreed.name, f"{agreed.used:,}", f"{agreed.total:,}"])
        for rho, has in zip(agreed.rhos, agreed.with_both, strict=True):
            low, high = interval(rho, agreed.used)
            bounds = "-" if math.isnan(low) else f"{low:.2f} to {high:.2f}"
            cell = "-" if math.isnan(rho) else f"{rho:.3f} ({bounds})"
            rows[-1].append(f"{cell}, has {has:,}" if arguments.missing_as_zero else cell)
    print("\n".join([*lines, *aligned(rows)]))
