"""Fold a sharing method into the tables of a checkpoint, which stock fairseq then reads without this plugin.

l2-input stays tied; square-output and cosine become untied, with a table more; distance needs an output bias, which
fairseq's models have not.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.analysis.checkpoints import read_checkpoint
from fairseq_tiedemb.analysis.export import export
from fairseq_tiedemb.cli._output import check_output, save_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what to export and where to."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="of tied_transformer, tied_lightconv, ...")
    parser.add_argument("output", type=Path, metavar="OUT", help="the new checkpoint")


def run(arguments: argparse.Namespace) -> int:
    """Writes the checkpoint, and prints the model's stock name."""
    check_output(arguments.output, flag="OUT")
    state = export(read_checkpoint(arguments.checkpoint, flag="CHECKPOINT"), name=str(arguments.checkpoint))
    save_aside(state, arguments.output)
    model = state["cfg"]["model"]
    print(f"{arguments.output}: {model['_name'] if isinstance(model, dict) else model.arch}")
    return 0
