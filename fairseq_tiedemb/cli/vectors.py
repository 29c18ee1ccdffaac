"""Write a checkpoint's table in word2vec's text format.

fairseq's --decoder-embed-path and --encoder-embed-path read it, as do most tools. It has the vectors that the sharing
method computes, in float32 without rounding, except those of <s>, <pad> and words that contain spaces.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.cli._tables import add_tables, files_of_tables, read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tables(parser, nargs=1)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the text file")


def run(arguments: argparse.Namespace) -> None:
    """Writes the file, and describes it."""
    from fairseq_tiedemb.vectors.word_table import write_vectors

    check_output(arguments.output, flag="--output", inputs=files_of_tables(arguments))
    table, *more = read_tables(arguments)
    if more:
        names = ", ".join(one.name for one in (table, *more))
        raise ValueError(f"--role: needs one table; got {names}. Use in, out or sum.")
    if table.dictionary is not None:  # which may be in the data folder of the training
        check_output(arguments.output, flag="--output", inputs=[table.dictionary])
    with written_aside(arguments.output) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        left_out = write_vectors(table, file)
    print(f"{arguments.output}: {table.describe()}" + (f", without {left_out:,} with space" if left_out else ""))
