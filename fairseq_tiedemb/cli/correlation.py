"""Spearman's rho between the cosines of word pairs in two tables.

rho is 1 if two tables rank all word pairs by similarity in the same order; their widths may differ. All tables are
compared on the words that every table has, matched by name, without <s> and <pad>. Time grows with the square of the
number of words; memory does not. Source: Press & Wolf 2016, table 4.
"""

import argparse
import math

from fairseq_tiedemb.cli._tables import add_tables, positive, read_tables, require_at_least


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the tables and the number of words."""
    add_tables(parser)
    parser.add_argument(
        "--most-frequent",
        type=int,
        metavar="N",
        help="compare only the first N common words, in the order of the first TABLE",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints rho of every two tables."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.correlation import cosine_correlation
    from fairseq_tiedemb.vectors.word_table import common_words, legend, unit_rows

    if arguments.most_frequent is not None:
        positive("--most-frequent", arguments.most_frequent)
    tables = read_tables(arguments)
    require_at_least(tables, 2)
    words = common_words(tables)[: arguments.most_frequent]
    if len(words) < 3:
        names = ", ".join(table.name for table in tables)
        raise ValueError(f"TABLE: needs tables with 3 words in common; got {len(words)} for {names}. Use others.")
    units = [unit_rows(table.rows_VD[[table.index[word] for word in words]]) for table in tables]
    rho = cosine_correlation(units)
    marks, lines = legend(tables)
    columns = [["rho"], *([mark] for mark in marks[1:])]
    for number, mark in enumerate(marks[:-1]):
        columns[0].append(mark)
        for other in range(1, len(tables)):
            cell = "-" if math.isnan(rho[number, other]) else f"{rho[number, other]:.3f}"
            columns[other].append(cell if other > number else "")
    print("\n".join([*lines, f"{len(words):,} words, {len(words) * (len(words) - 1) // 2:,} pairs", *aligned(columns)]))
    return 0
