"""Print the words whose vectors are nearest to given words.

Nearest means highest cosine, without the word itself.
"""

import argparse
from itertools import zip_longest

from fairseq_tiedemb.cli._options import add_number
from fairseq_tiedemb.cli._tables import add_tables, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tables(parser)
    about = "words whose neighbours are printed"
    parser.add_argument("--words", nargs="+", action="extend", required=True, metavar="WORD", help=about)
    add_number(parser, "--count", "number of neighbours per word", 10)


def run(arguments: argparse.Namespace) -> None:
    """Prints a block per word, with a column per table."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.word_table import legend, nearest

    tables = read_tables(arguments)
    marks, lines = legend(tables)
    for word in arguments.words:
        columns = [nearest(table, word, arguments.count) for table in tables]
        rows = zip_longest(*([f"{other} {cosine:.3f}" for other, cosine in near] for near in columns), fillvalue="")
        numbered = [[str(number), *row] for number, row in enumerate(rows, start=1)]
        lines += ["", word, *aligned([["", *marks], *numbered])]
    print("\n".join(lines))
