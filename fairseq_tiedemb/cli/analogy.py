"""Answer analogies (a is to b as c is to what?) by word vectors.

Questions are lines of four words under `: section` lines, as in questions-words.txt; case is ignored. The answer is the
word nearest to b - a + c, with vectors of length 1, excluding a, b and c. A question is left out if a table lacks one
of its words among the most frequent ones; the output counts these. Totals are sums over questions; sections whose names
begin with "gram" are syntactic, all others semantic. Source: Mikolov et al. 2013.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._options import add_number
from fairseq_tiedemb.cli._tables import add_tables, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tables(parser)
    about = "file of questions, such as questions-words.txt"
    parser.add_argument("--questions", type=Path, required=True, metavar="FILE", help=about)
    add_number(parser, "--most-frequent", "use only the first N words of each table, in questions and answers", 30_000)
    about = "use 3CosMul (Levy & Goldberg 2014): products of cosines instead of sums"
    parser.add_argument("--multiply", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Prints the number of questions asked and the share of right answers, by section and in total."""
    from fairseq_tiedemb.analysis.columns import aligned
    from fairseq_tiedemb.vectors.analogies import answer, in_total, read_questions
    from fairseq_tiedemb.vectors.word_table import legend

    sections = read_questions(arguments.questions)
    tables = read_tables(arguments)
    results = answer(tables, sections, most_frequent=arguments.most_frequent, multiply=arguments.multiply)
    marks, lines = legend(tables)
    rows = [["section", "asked", "of", *marks]]
    for answers in [*results, *in_total(results)]:
        shares = [f"{right / answers.asked:.3f}" if answers.asked else "-" for right in answers.right]
        rows.append([answers.name, f"{answers.asked:,}", f"{answers.total:,}", *shares])
    print("\n".join([*lines, *aligned(rows)]))
