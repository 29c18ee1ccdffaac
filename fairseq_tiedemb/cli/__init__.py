"""`fairseq-tiedemb <command>`: what fairseq's own commands have no place for.

A command is a module of this folder, and its name is the module's name (`-` for `_`). The first line of its docstring
is its help. It has two functions: `add_arguments(parser)` and `run(arguments)`, which returns the exit status. To add
one, write the module and list it in `COMMANDS`. Nothing else in the package imports this folder.

.. include:: README.md
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_tiedemb import __version__

# Name of the command -> its help, which stands here too so that a module is imported only when its command is chosen:
# torch and fairseq take seconds.
COMMANDS = {
    "analogy": "Answer analogies (a is to b as c is to what?) by word vectors, by section and in total.",
    "arch": "List the presets for --arch, or show one: what it shares, its size, its options and its recipe.",
    "average": "Average the weights of checkpoints into a new one.",
    "classes": "Put the words of a text into classes by what stands beside them, for --class-file.",
    "correlation": "Spearman's rho between the cosines of all pairs of words in two tables.",
    "counts": "Make word vectors by counting: what words stand near each other in a text, without any training.",
    "curves": "Draw and print learning curves from logs of fairseq-train.",
    "env": "Print versions, machine, and what compat mended, for a report of a fault.",
    "export": "Write a trained model for stock fairseq, or for CTranslate2, which serves it fast; both without this "
    "plugin.",
    "map": "Draw words as a map: their vectors, of length 1, laid out in a plane, a panel a table.",
    "measure": "Run a command, and add its CPU seconds and peak memory to a file.",
    "neighbours": "Print the words whose vectors are nearest to those of given words.",
    "ngram": "Perplexity of n-gram models on text: smoothing methods, modified Kneser-Ney by default, ARPA files, "
    "interpolation.",
    "norms": "Print and draw the norms of a trained model's embedding rows.",
    "overlap": "Count the subwords that two languages share in their training text.",
    "path": "Print the folder of this plugin, for fairseq's --user-dir.",
    "record": "Write a result as data, out of the logs of the commands that measured it.",
    "report": "Make a report of recorded results, or of your own trainings.",
    "score": "Scores sentences by a language model: log-probability, predicted tokens and text of each, in their "
    "order.",
    "similarity": "Spearman's rho between people's scores of pairs of words and cosines of word vectors.",
    "updates": "What training does to the rows of input and output table: how often, by which role, and how probable "
    "repeats are.",
    "vectors": "Write a table of a checkpoint as word vectors in word2vec's text format.",
}
PACKAGE = Path(__file__).parent.parent


class CommandParser(argparse.ArgumentParser):
    """The parser of one command, which imports the command's module when it is used."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.get_default("run") is None:
            command = command_module(self.prog.split()[-1])
            self.description = command.__doc__
            command.add_arguments(self)
            self.set_defaults(run=command.run)
        return super().parse_known_args(args, namespace)


def command_module(name: str) -> Any:
    """Imports the module of a command."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line, with one subparser for each command."""
    parser = argparse.ArgumentParser(
        prog="fairseq-tiedemb",
        description="The shared embedding in fairseq.",
        # The version names a folder, which is not to be cut into lines.
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fairseq-tiedemb {__version__}, {PACKAGE}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=CommandParser)
    for name, help_line in COMMANDS.items():
        subparsers.add_parser(name, help=help_line)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: the words after `fairseq-tiedemb`; those of the process if None.

    Returns:
        The exit status: 2 for arguments that are refused, or a package that is missing; 141, as a shell has it, where
        nobody reads what is printed.
    """
    parser = create_parser()
    try:
        arguments = parser.parse_args(argv)
        status = arguments.run(arguments)
        sys.stdout.flush()  # not when Python ends, where nothing can be caught
        return status
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be written
        return 128 + signal.SIGPIPE
    except ValueError as error:  # what a user can mend has a message that says how
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith(PACKAGE.name):
            raise
        print(
            f"{parser.prog}: error: this command needs the package {error.name}; got a Python without it, "
            f"{sys.executable}. Use pip install, without --no-deps.",
            file=sys.stderr,
        )
    return 2
