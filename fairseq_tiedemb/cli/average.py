"""Average the weights of checkpoints into a new one.

fairseq-generate reads it like any other checkpoint. The inputs are checkpoints, or their folder with a number of last
checkpoints. Only the weights are averaged. The rest is the first file's or, with a folder, the newest checkpoint's,
without the optimizer's state.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from fairseq_tiedemb.cli._output import check_output, save_aside


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the inputs and the output, with the options of fairseq's script average_checkpoints.py."""
    parser.add_argument(
        "--inputs", nargs="+", type=Path, required=True, metavar="PATH", help="the checkpoints, or their folder"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the new checkpoint")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "--num-epoch-checkpoints", type=int, metavar="N", help="average the last N checkpointEPOCH.pt of the folder"
    )
    number.add_argument(
        "--num-update-checkpoints",
        type=int,
        metavar="N",
        help="average the last N checkpoint_EPOCH_UPDATE.pt of the folder",
    )
    parser.add_argument(
        "--checkpoint-upper-bound", type=int, metavar="N", help="ignore checkpoints after this epoch, or update"
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the average, and prints the averaged checkpoints."""
    paths = chosen(
        arguments.inputs,
        epochs=arguments.num_epoch_checkpoints,
        updates=arguments.num_update_checkpoints,
        upper_bound=arguments.checkpoint_upper_bound,
    )
    check_output(arguments.output, flag="--output", inputs=paths)
    from fairseq_tiedemb.checkpoints.averages import average

    state = average(paths)
    save_aside(state, arguments.output)
    print(f"{arguments.output}: the average of {len(paths)}")
    for path in paths:
        print(f"  {path}")
    return 0


def chosen(
    inputs: Sequence[Path], *, epochs: int | None, updates: int | None, upper_bound: int | None
) -> Sequence[Path]:
    """Returns the checkpoints to average: `inputs`, or the last `epochs` or `updates` checkpoints of one folder.

    Raises:
        ValueError: if the arguments do not fit together, or the folder has too few checkpoints.
    """
    count = epochs if updates is None else updates
    if count is None:
        if upper_bound is not None:
            raise ValueError(
                "--checkpoint-upper-bound: needs --num-epoch-checkpoints or --num-update-checkpoints; got "
                f"{upper_bound} without them. Use one of them, with a folder."
            )
        for path in inputs:
            if path.is_dir():
                raise ValueError(
                    f"--inputs: needs checkpoints; got the folder {path}. Use --num-epoch-checkpoints or "
                    "--num-update-checkpoints with it."
                )
        return inputs
    if len(inputs) > 1:
        raise ValueError(
            f"--inputs: needs one folder with --num-epoch-checkpoints or --num-update-checkpoints; got {len(inputs)} "
            "paths. Use one, or leave the number out."
        )
    from fairseq_tiedemb.checkpoints.averages import last_checkpoints  # imports torch, which takes a second

    return last_checkpoints(inputs[0], count, by_update=updates is not None, upper_bound=upper_bound)
