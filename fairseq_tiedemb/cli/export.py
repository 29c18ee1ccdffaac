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
    parser.add_argument(
        "--settings",
        choices=("dict", "namespace"),
        default="dict",
        help="how to save those of fairseq's older models: plain, which fairseq reads under every torch, or as "
        "fairseq-train saves them, which torch 2.6 and newer refuse",
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the checkpoint, and prints the model's stock name."""
    check_output(arguments.output, flag="OUT")
    state = read_checkpoint(arguments.checkpoint, flag="CHECKPOINT")
    state = export(state, name=str(arguments.checkpoint), as_namespace=arguments.settings == "namespace")
    save_aside(state, arguments.output)
    model = state["cfg"]["model"]
    options = model if isinstance(model, dict) else vars(model)
    print(f"{arguments.output}: {options.get('_name') or options['arch']}")
    return 0
