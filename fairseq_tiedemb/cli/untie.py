"""Untie a model: each role gets a table of its own.

The new model scores every sentence as the old one does.
"""

import argparse

from fairseq_tiedemb.cli._starts import add_start as add_arguments  # noqa: F401 (its own)
from fairseq_tiedemb.cli._starts import write_start


def run(arguments: argparse.Namespace) -> None:
    """Writes the untied model."""
    from fairseq_tiedemb.starts.tie import untie

    write_start(arguments, untie)
