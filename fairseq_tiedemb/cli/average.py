"""Average the weights of checkpoints into a new one.

fairseq-generate reads it like any other checkpoint. The inputs are checkpoints, or their folder with a number of last
checkpoints. Only the weights are averaged. The rest is the first file's or, with a folder, the newest checkpoint's,
without the optimizer's state.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._options import add_number, refuse_options
from fairseq_tiedemb.cli._output import check_output, save_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of fairseq's script average_checkpoints.py."""
    about = "the checkpoints, or their folder"
    parser.add_argument("--inputs", nargs="+", action="extend", type=Path, required=True, metavar="PATH", help=about)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the new checkpoint")
    number = parser.add_mutually_exclusive_group()
    for kind, name in (("epoch", "checkpointEPOCH.pt"), ("update", "checkpoint_EPOCH_UPDATE.pt")):
        add_number(number, f"--num-{kind}-checkpoints", f"average the last N {name} of the folder")
    about = "ignore checkpoints after this epoch, or update"
    parser.add_argument("--checkpoint-upper-bound", type=int, metavar="N", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Writes the average of the checkpoints given, or of the last ones of a folder, and prints which they are."""
    from fairseq_tiedemb.checkpoints.averages import average, last_checkpoints  # imports torch, which takes a second

    paths, upper_bound = arguments.inputs, arguments.checkpoint_upper_bound
    epochs, updates = arguments.num_epoch_checkpoints, arguments.num_update_checkpoints
    counted = "--num-epoch-checkpoints or --num-update-checkpoints"
    if epochs is None and updates is None:
        refuse_options(arguments, ["checkpoint_upper_bound"], needs=f"{counted} with a folder")
        for path in filter(Path.is_dir, paths):
            raise ValueError(f"--inputs: needs checkpoints; got the folder {path}. Use {counted} with it.")
    elif len(paths) > 1:
        needs = f"one folder with {counted}"
        raise ValueError(f"--inputs: needs {needs}; got {len(paths)} paths. Use one, or leave the number out.")
    else:
        count = epochs if updates is None else updates
        paths = last_checkpoints(paths[0], count, by_update=updates is not None, upper_bound=upper_bound)
    check_output(arguments.output, flag="--output", inputs=paths)
    save_aside(average(paths), arguments.output)
    print("\n  ".join([f"{arguments.output}: the average of {len(paths)}", *map(str, paths)]))
