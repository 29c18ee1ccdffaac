"""Tie the tables of an untied model, as a start for tied training.

The decoder's input and output become one table: their mean, or one of the two. The new checkpoint needs training
(--finetune-from-model), since the model has never read and predicted words by one table.
"""

import argparse

from fairseq_tiedemb.cli._starts import add_start, read_start, write_start

WAYS = ("mean", "input", "output")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoints and the table."""
    add_start(parser)
    parser.add_argument(
        "--from", choices=WAYS, default="mean", dest="way", help="tables that the shared one is made of (default: mean)"
    )


def run(arguments: argparse.Namespace) -> None:
    """Writes the tied model."""
    from fairseq_tiedemb.starts.tie import WAYS, tie

    state = tie(read_start(arguments), arguments.way)
    flag = "--share-decoder-input-output-embed"
    write_start(arguments, state, f"input and output are one table, {WAYS[arguments.way]}; it needs training", flag)
