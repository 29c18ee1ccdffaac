"""Run a command, and add its CPU time and memory to a file.

A training that is interrupted and run again gets a line for each run in the file, so that `record` can add them up. The
line is brought up to date while the command runs: what ends both loses half a minute of the count at most.
"""

import argparse
import sys
from pathlib import Path

from fairseq_tiedemb.cli._output import check_output
from fairseq_tiedemb.results.usage import as_text, measure, read_usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the file and the command."""
    parser.add_argument("file", type=Path, metavar="FILE", help="where a JSON line is added; need not be there")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="a program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command and says, on stderr, what all its runs took; the exit status is the command's."""
    if not arguments.command:
        raise ValueError("COMMAND: needs a program and its arguments; got none. Use measure FILE fairseq-train ...")
    check_output(arguments.file, flag="FILE")
    status = measure(arguments.command, arguments.file)
    print(as_text(read_usage(arguments.file)), file=sys.stderr)
    return status
