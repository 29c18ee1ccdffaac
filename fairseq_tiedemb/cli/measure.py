"""Run a command, and add its CPU time and memory to a file.

Every run adds a line, so that `record` can add up the runs of an interrupted training. The line is updated while the
command runs: if both are killed, at most half a minute is lost.
"""

import argparse
import sys
from pathlib import Path

from fairseq_tiedemb.cli._output import check_output
from fairseq_tiedemb.results.usage import as_text, measure, read_usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the file and the command."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="file to which a JSON line is added; created if missing"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="a program and its arguments")


def run(arguments: argparse.Namespace) -> int:
    """Runs the command, prints the total cost of all its runs on stderr, and returns its exit status."""
    if not arguments.command:
        raise ValueError("COMMAND: needs a program and its arguments; got none. Use measure FILE fairseq-train ...")
    check_output(arguments.file, flag="FILE")
    status = measure(arguments.command, arguments.file)
    print(as_text(read_usage(arguments.file)), file=sys.stderr)
    return status
