"""Answer analogies (a is to b as c is to what?) by word vectors.

Questions are lines of four words under `: section` lines, as in questions-words.txt; letters' case does not count. The
answer is the word nearest to b - a + c, with vectors of length 1, the three words of the question aside. Questions with
a word that one of the tables lacks among its most frequent are left out, and counted. Totals are sums over questions;
sections whose names begin with "gram" are syntactic, all others semantic. Source: Mikolov et al. 2013.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._tables import add_tables, positive, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds tables and questions."""
    add_tables(parser)
    parser.add_argument("--questions", type=Path, required=True, metavar="FILE", help="such as questions-words.txt")
    parser.add_argument(
        "--most-frequent",
        type=int,
        default=30_000,
        metavar="N",
        help="only the first N words of each table, to ask for and to answer with (default: 30000)",
    )
    parser.add_argument(
        "--multiply", action="store_true", help="3CosMul of Levy & Goldberg (2014), products of cosines and not sums"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints how many were asked, and the share that is right, by section and in total."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.analogies import answer, in_total, read_questions
    from fairseq_tiedemb.vectors.word_table import legend

    positive("--most-frequent", arguments.most_frequent)
    sections = read_questions(arguments.questions)
    tables = read_tables(arguments)
    results = answer(tables, sections, most_frequent=arguments.most_frequent, multiply=arguments.multiply)
    marks, lines = legend(tables)
    columns = [["section"], ["asked"], ["of"], *([mark] for mark in marks)]
    for each in [*results, *in_total(results)]:
        shares = [f"{right / each.asked:.3f}" if each.asked else "-" for right in each.right]
        for column, cell in zip(columns, [each.name, f"{each.asked:,}", f"{each.total:,}", *shares], strict=True):
            column.append(cell)
    print("\n".join([*lines, *aligned(columns)]))
    return 0
