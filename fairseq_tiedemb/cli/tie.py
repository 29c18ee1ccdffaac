"""Tie the tables of an untied model, as a start for tied training.

The decoder's input and output become one table: their mean, or one of the two. The new checkpoint needs training
(--finetune-from-model), since the model has never read and predicted words by one table.
"""

import argparse

from fairseq_tiedemb.cli._starts import add_start, write_start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    about = "what the shared table is made of (default: mean)"
    parser.add_argument("--from", choices=("mean", "input", "output"), default="mean", dest="way", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Writes the tied model."""
    from fairseq_tiedemb.starts.tie import tie

    write_start(arguments, lambda trained: tie(trained, arguments.way))
