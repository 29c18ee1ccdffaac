"""Ends a refused command of fairseq with the message alone, without a traceback."""

import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

import fairseq
from torch.multiprocessing import ProcessRaisedException

from ..terminal import debugging, error_line
from ..wrapping import wrap
from .mending import mend_now

PACKAGE = Path(__file__).resolve().parent.parent
FAIRSEQ = Path(fairseq.__file__).resolve().parent
# The end of a traceback: the innermost frame, and the message.
END = re.compile(r'  File "([^"\n]+)", line .*?\n\w*(?:Error|Exception): (.*)', re.DOTALL)
# The form that all refusals have, and how fairseq's own begin.
OURS = re.compile(r".*needs? .*; (?:got|found) .*", re.DOTALL)
BEGINNINGS = "--[a-z]|Must specify batch size |Size of sample |Dataset not found: |DiverseBeamSearch requires "
BEGINNINGS += "|min_len |Could not infer language pair|Model file not found: "
# Those of fairseq's own that name no remedy, and what they are replaced by.
REWORDED = {
    "optimizer is required!": "--optimizer: needs a name; got none. Use adam, say: this preset has no recipe.",
    r"\[Errno 2\] No such file or directory: '([^\n]*/dict[^/\n]*\.txt)'": (
        r"\1: needs a dictionary of fairseq-preprocess; got no file. Use the folder of its --destdir for the data."
    ),
}
FAIRSEQS = re.compile("|".join((f"(?:{BEGINNINGS}).*", *REWORDED)), re.DOTALL)


def running_command() -> str | None:
    """The name of the command of fairseq's that this process runs, `fairseq-train`; None for any other program."""
    program = Path(sys.argv[0] if sys.argv else "")
    modules = FAIRSEQ.parent / "fairseq_cli"
    name = program.stem if program.parent.name == modules.name else program.name.removeprefix("fairseq-")
    name = name.replace("_", "-")
    is_command = program.name != name and (modules / f"{name.replace('-', '_')}.py").is_file()
    return f"fairseq-{name}" if is_command else None


def refusal(error: BaseException) -> str | None:
    """The message of an error that this package, or fairseq, has raised to refuse an option; None for any other error.

    One of several processes that have been started tells its error as text.
    """
    told = [str(error)] if isinstance(error, ProcessRaisedException) else traceback.format_exception(error, chain=False)
    trace = "".join(told).strip("\n")
    ending = END.fullmatch(trace[trace.rfind('\n  File "') + 1 :])
    for folder, form in ((PACKAGE, OURS), (FAIRSEQ, FAIRSEQS), (FAIRSEQ.parent / "fairseq_cli", FAIRSEQS)):
        if ending and Path(ending[1]).resolve().is_relative_to(folder) and form.fullmatch(ending[2]):
            reworded = (re.sub(old, new, ending[2]) for old, new in REWORDED.items() if re.fullmatch(old, ending[2]))
            return next(reworded, ending[2])
    return None


@mend_now
def refusals_end_in_their_message() -> None:
    """End a command of fairseq's that is refused in one line, `fairseq-train: error: ...`, with status 2.

    Without it: Python's traceback stands above the message, and the status is that of a fault, 1. Every other error
    keeps both; FAIRSEQ_TIEDEMB_DEBUG=1 shows the tracebacks of refusals, too. A program that imports fairseq keeps its
    `sys.excepthook`. Goes when fairseq's commands say in one line what they refuse.
    """
    command = running_command()
    if command is None:
        return

    @wrap(sys, "excepthook")
    def excepthook(original: Any, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        message = None if debugging() else refusal(error)
        if message is None:
            return original(kind, error, trace)
        # Of several processes, fairseq silences `print` in all but the first, and torch keeps `sys.stderr` back.
        (sys.__stderr__ or sys.stderr).write(error_line(command, message) + "\n")
        raise SystemExit(2)  # which Python takes for the end of the process

    if command == "fairseq-hydra-train":
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # else hydra shows a traceback of its own, and exits
