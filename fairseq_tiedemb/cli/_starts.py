"""What the commands have in common that make a checkpoint for another training to start from."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._output import check_output, save_aside
from fairseq_tiedemb.cli._user_dir import add_user_dir, import_user_dir


def add_start(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoints and the folder of dictionaries."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a model of fairseq's or ours")
    parser.add_argument("output", type=Path, metavar="OUT", help="the new checkpoint")
    parser.add_argument(
        "--data", type=Path, help="folder with the dictionaries of the training. Default: from the checkpoint"
    )
    add_user_dir(parser)


def read_start(arguments: argparse.Namespace, *inputs: Path) -> Any:
    """Returns the trained model (``Trained``), after checking the output, which none of the ``inputs`` may be."""
    check_output(arguments.output, flag="OUT", inputs=(arguments.checkpoint, *inputs))
    from fairseq_tiedemb.starts.trained import read_trained  # imports torch, which takes a second

    import_user_dir(arguments.user_dir)
    return read_trained(arguments.checkpoint, arguments.data)


def write_start(arguments: argparse.Namespace, state: dict[str, Any], about: str, *flags: str) -> None:
    """Writes the checkpoint, and prints what it is, and the ``flags`` beside that a training from it needs."""
    save_aside(state, arguments.output)
    print(f"{arguments.output}: {about}; without the optimiser's state")
    print(" ".join([f"Train it with fairseq-train --finetune-from-model {arguments.output}", *flags]))
