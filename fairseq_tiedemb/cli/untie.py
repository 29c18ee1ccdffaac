"""Untie a model: each role gets a table of its own.

The new model scores every sentence as the old one does.
"""

import argparse

from fairseq_tiedemb.cli._starts import add_start, read_start, write_start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoints."""
    add_start(parser)


def run(arguments: argparse.Namespace) -> None:
    """Writes the untied model."""
    from fairseq_tiedemb.starts.tie import untie

    state = untie(read_start(arguments))
    write_start(arguments, state, "each role has a table of its own, which scores as before")
