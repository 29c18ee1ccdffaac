"""What the commands have in common that make a checkpoint for another training to start from."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._options import add_user_dir, import_user_dir
from fairseq_tiedemb.cli._output import check_output, save_aside


def add_start(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoints and the folder of dictionaries."""
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="a model of fairseq's or ours")
    parser.add_argument("output", type=Path, metavar="OUT", help="the new checkpoint")
    about = "folder with the dictionaries of the training. Default: from the checkpoint"
    parser.add_argument("--data", type=Path, help=about)
    add_user_dir(parser)


def write_start(arguments: argparse.Namespace, make: Callable[[Any], tuple[Any, str]], *inputs: Path) -> None:
    """Writes the checkpoint that ``make`` returns with its description for a ``Trained`` model, over no input."""
    check_output(arguments.output, flag="OUT", inputs=(arguments.checkpoint, *inputs))
    from fairseq_tiedemb.checkpoints.settings import as_dict
    from fairseq_tiedemb.starts.trained import read_trained  # imports torch, which takes a second

    import_user_dir(arguments.user_dir)
    trained = read_trained(arguments.checkpoint, arguments.data)
    folders = str(arguments.data or as_dict(trained.state["cfg"]["task"])["data"]).split(":")
    dictionaries = [path for folder in folders for path in Path(folder).glob("dict*.txt")]
    check_output(arguments.output, flag="OUT", inputs=dictionaries)
    state, about = make(trained)
    save_aside(state, arguments.output)
    print(f"{arguments.output}: {about}; for --finetune-from-model, without the optimiser's state")
