"""Print the words whose vectors are nearest to given words.

Nearest means highest cosine, without the word itself.
"""

import argparse

from fairseq_tiedemb.cli._tables import add_tables, positive, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds tables and words."""
    add_tables(parser)
    parser.add_argument("--words", nargs="+", required=True, metavar="WORD", help="words whose neighbours are printed")
    parser.add_argument(
        "--count", type=int, default=10, metavar="N", help="number of neighbours per word (default: 10)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints a block per word, with a column per table."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.neighbours import nearest
    from fairseq_tiedemb.vectors.word_table import legend

    positive("--count", arguments.count)
    tables = read_tables(arguments)
    marks, lines = legend(tables)
    for word in arguments.words:
        found = [nearest(table, word, arguments.count) for table in tables]
        longest = max(map(len, found))
        columns = [["", *map(str, range(1, longest + 1))]]
        for mark, near in zip(marks, found, strict=True):
            cells = [f"{other} {cosine:.3f}" for other, cosine in near]
            columns.append([mark, *cells, *[""] * (longest - len(cells))])
        lines += ["", word, *aligned(columns)]
    print("\n".join(lines))
    return 0
