"""`fairseq-tiedemb <command>`: what fairseq's own commands have no place for.

A command is a module of this folder, and its name is the module's name. The first line of its docstring is its help.
It has two functions: `add_arguments(parser)` and `run(arguments)`, which returns the exit status. To add one, write the
module and list it in `COMMANDS`. Nothing else in the package imports this folder.
"""

import argparse
import sys
from collections.abc import Sequence

from fairseq_tiedemb import __version__
from fairseq_tiedemb.cli import arch, average, curves, export, ngram, norms, path, score

COMMANDS = (arch, average, curves, export, ngram, norms, path, score)


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line, with one subparser for each command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-tiedemb",
        description="The shared embedding in fairseq.",
        # The version names a folder, which is not to be cut into lines.
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        The exit status: 2 for arguments that are refused.
    """
    parser = create_parser()
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except ValueError as error:  # what a user can mend has a message that says how
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 2
