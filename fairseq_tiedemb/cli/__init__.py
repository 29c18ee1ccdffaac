"""`fairseq-tiedemb <command>`: what fairseq's own commands have no place for.

A command is a module of this folder, and its name is the module's name. The first line of its docstring is its help.
It has two functions: `add_arguments(parser)` and `run(arguments)`, which returns the exit status. To add one, write the
module and list it in `COMMANDS`. Nothing else in the package imports this folder.
"""

import argparse
from collections.abc import Sequence

from fairseq_tiedemb import __version__
from fairseq_tiedemb.cli import average, curves, ngram, norms, path

COMMANDS = (average, curves, ngram, norms, path)


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line, with one subparser for each command."""
    parser = argparse.ArgumentParser(prog="fairseq-tiedemb", description="The shared embedding in fairseq.")
    parser.add_argument("--version", action="version", version=f"fairseq-tiedemb {__version__}, {path.plugin_folder()}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2].replace("_", "-")
        help_line = (command.__doc__ or "").partition("\n")[0]
        subparser = subparsers.add_parser(name, help=help_line, description=command.__doc__)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after `fairseq-tiedemb`; those of the process if None.

    Returns:
        The exit status.
    """
    arguments = create_parser().parse_args(argv)
    return arguments.run(arguments)
