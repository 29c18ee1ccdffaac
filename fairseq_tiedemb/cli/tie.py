"""Tie the tables of an untied model, as a start for tied training.

The decoder's input and output become one table, with --share-all-embeddings the encoder's input, too: the mean of the
tables, or one of them. The new checkpoint needs training (--finetune-from-model), since the model has never read and
predicted words by one table.
"""

import argparse

from fairseq_tiedemb.cli._starts import add_start, write_start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    about = "what the shared table is made of; source is the encoder's (default: mean)"
    parser.add_argument("--from", choices=("mean", "input", "output", "source"), default="mean", dest="way", help=about)
    about = "one table for the encoder, too, whose dictionary must be the decoder's"
    parser.add_argument("--share-all-embeddings", action="store_true", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Writes the tied model."""
    if arguments.way == "source" and not arguments.share_all_embeddings:
        raise ValueError("--from: needs --share-all-embeddings; got source without it. Use both, or another table.")
    from fairseq_tiedemb.starts.tie import tie

    write_start(arguments, lambda trained: tie(trained, arguments.way, three_way=arguments.share_all_embeddings))
