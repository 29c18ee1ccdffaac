"""`fairseq-tiedemb <command>`: what fairseq's own commands have no place for.

A command is a module of this folder, and its name is the module's name. The first line of its docstring is its help.
It has two functions: `add_arguments(parser)` adds what `-h` shows, unless it has none, and `run(arguments)` returns the
exit status, or None for success. To add one, write the module and list it in `GROUPS`. Nothing else in the package
imports this folder. What a user can mend, every function here refuses by a ValueError, which `main` prints.

What a command prints is made printable here (`fairseq_tiedemb/terminal.py`), whatever names and words it comes from.
With `EXACT = True` it is what programs read: printable on a terminal, and as it is in a pipe or a file.

.. include:: README.md
"""

import argparse
import errno
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from fairseq_tiedemb import __version__
from fairseq_tiedemb.cli._signals import end_by, ending_by_signals
from fairseq_tiedemb.terminal import PrintableStream, debugging, error_line

# The commands, by what they are for.
GROUPS = {
    "train": ["path", "arch", "classes", "counts"],
    "measure": ["score", "ngram", "similarity", "analogy", "correlation"],
    "look": ["curves", "neighbours", "map", "norms", "overlap", "updates"],
    "export": ["average", "export", "vectors"],
    "start": ["extend", "tie", "untie"],
    "maintain": ["report", "env"],
}
PACKAGE = Path(__file__).parent.parent


def help_line(name: str) -> str:
    """The first line of a command's docstring, read and not imported: torch and fairseq take seconds."""
    with (PACKAGE / "cli" / f"{name}.py").open(encoding="utf-8") as file:
        return file.readline().strip('"\n')


COMMANDS = {name: help_line(name) for group in GROUPS.values() for name in group}


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, which imports the command's module when it is used.

    ValueError for a value that its type (``at_least``) refuses, as for all that is refused when the command runs.
    """

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.get_default("run") is None:
            command = importlib.import_module(f"{__name__}.{self.prog.split()[-1]}")
            self.description = command.__doc__
            if hasattr(command, "add_arguments"):
                command.add_arguments(self)
            self.set_defaults(run=lambda arguments: command.run(arguments) or 0, exact=getattr(command, "EXACT", False))
        try:
            arguments, rest = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            if not isinstance(error.__context__, argparse.ArgumentTypeError):
                self.error(str(error))
            raise ValueError(f"{error.argument_name}: {error.message}") from None
        # Python before 3.12.7 gives a second positional argument, of any number of words, none that follow an option.
        for action in self._actions if rest and not any(word.startswith("-") and word != "-" for word in rest) else ():
            if action.nargs == "*" and not action.option_strings:
                before, given = getattr(arguments, action.dest), (self._get_value(action, word) for word in rest)
                setattr(arguments, action.dest, [*([] if before is action.default else before), *given])
                rest = []
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return arguments, rest


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line, with one subparser for each command."""
    width = max(len(name) for name in COMMANDS)  # no `map`, which is a command
    groups = [
        "\n".join([f"{group}:", *(f"  {name:<{width}}  {COMMANDS[name]}" for name in names)])
        for group, names in GROUPS.items()
    ]
    parser = argparse.ArgumentParser(
        prog="fairseq-tiedemb",
        description="\n\n".join(["The shared embedding in fairseq.", *groups]),
        # The lines of the commands and of the version are not to be cut.
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fairseq-tiedemb {__version__}, {PACKAGE}")
    # Without a help of its own a subparser is not listed once more.
    subparsers = parser.add_subparsers(metavar="COMMAND", help="-h after it shows options", parser_class=CommandParser)
    for name in COMMANDS:
        subparsers.add_parser(name, exit_on_error=False)
    return parser


def main(argv: Sequence[str] | None = None, parser: argparse.ArgumentParser | None = None) -> int:
    """Runs one command; without one, shows them all.

    Args:
        argv: the words after `fairseq-tiedemb`; those of the process if None.
        parser: of another program that is to end as these commands do; its defaults have `run` and `exact`.

    Returns:
        The exit status: 2 for arguments that are refused, no command, a package that is missing, or a full disk; 141,
        as a shell has it, where nobody reads what is printed. SIGINT, SIGTERM and SIGHUP end it once it has cleaned up.
    """
    # Before torch is imported. Without it, threads that wait keep the cores from other processes, and from each other.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    parser = parser or create_parser()
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as `>&-` does
            setattr(sys, name, open(os.devnull, mode))
    try:
        with ending_by_signals(), redirect_stderr(PrintableStream(sys.stderr)):
            with redirect_stdout(PrintableStream(sys.stdout)) as stdout:  # help and version
                try:
                    arguments = parser.parse_args(argv)
                    if not hasattr(arguments, "run"):
                        parser.print_help()
                        return 2
                finally:
                    stdout.flush()
            with warnings.catch_warnings():
                # By torch >= 2.14 of fairseq, which some commands import before `compat`, which silences it.
                warnings.filterwarnings("ignore", r"`torch\.jit\.script` is deprecated", FutureWarning)
                return run(arguments)
    except OSError as error:
        got = f"an error of the system ({error.strerror})"
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            if error.filename is None or debugging():
                raise
            return refuse(parser.prog, f"{error.filename}: needs a file that the system opens; got {got}. Use another.")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be written
        if isinstance(error, BrokenPipeError):  # `| head` has read enough
            return 128 + signal.SIGPIPE
        use = "another place, or make room"
        return refuse(parser.prog, f"standard output: needs a disk that takes it all; got {got}. Use {use}.")
    except KeyboardInterrupt as interrupt:
        number = signal.Signals(*interrupt.args or (signal.SIGINT,))
    except ValueError as error:  # what a user can mend has a message that says how
        if debugging():
            raise
        return refuse(parser.prog, str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(PACKAGE.name):
            raise
        needs, got = f"the package {error.name.partition('.')[0]}", f"a Python without it, {sys.executable}"
        return refuse(parser.prog, f"this command needs {needs}; got {got}. Use pip install, without --no-deps.")
    # Here the error's frames are gone, and with them the folders that they had open.
    return end_by(number, parser.prog)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command of the arguments; its standard output is printable, unless a program reads it."""
    is_exact = arguments.exact and not sys.stdout.isatty()
    if is_exact and hasattr(sys.stdout, "reconfigure"):  # an ASCII locale would end it within the text
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    with redirect_stdout(sys.stdout if is_exact else PrintableStream(sys.stdout)):
        status = arguments.run(arguments)
        sys.stdout.flush()  # not when Python ends, where nothing can be caught
        return status


def refuse(program: str, message: str) -> int:
    """Prints the message of a refusal; returns the exit status."""
    print(error_line(program, message), file=sys.stderr)
    return 2
