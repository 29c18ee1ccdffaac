"""Make a page of your own trainings.

Writes FOLDER/report.html, which needs no network: learning curves, best figures, options, and the content of
score-NAME.log, NAME.bleu and NAME.svg in the folder of a training. The same trainings make the same bytes.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.analysis.curves import run_names
from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.results import runs
from fairseq_tiedemb.results.page import page
from fairseq_tiedemb.terminal import printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "logs of fairseq-train, or folders with train.log or checkpoints"
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help=about)
    about = "folder of report.html (default: .)"
    parser.add_argument("--output", "--html", type=Path, default=Path(), metavar="FOLDER", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Makes the page, then writes it, whole or not at all, and prints its name."""
    if not arguments.runs:
        use = "the folder of a --save-dir; for the results of the recipes, recipes/make_pages.py"
        raise ValueError(f"RUN: needs a training; got none. Use {use}.")
    trainings = list(map(runs.read_training, arguments.runs, run_names(arguments.runs)))
    introduction = "Made by `fairseq-tiedemb report` from logs and checkpoints. A heading sorts its table."
    text = page("Trainings", [introduction], runs.sections(trainings))
    path = arguments.output / "report.html"
    check_output(path, flag="--output", inputs=arguments.runs)
    with written_aside(path) as aside:
        aside.write_text(printable(text), encoding="utf-8")
    print(path)
