"""Make a report of recorded results, or of your own trainings.

Without RUN, from the tables and the results that `record` wrote, and from nothing else: OUTPUT/RESULTS.md with all
tables, OUTPUT/report.html, a page that needs no network, and the parts of the files of --fill between
`<!-- results:TABLE [COLUMN ...] -->` or `<!-- results:TABLE/ROW/COLUMN -->` and `<!-- /results -->`. The same results
make the same bytes. With RUN, logs of fairseq-train or folders with train.log or checkpoints, the page alone: learning
curves, best figures, what score-NAME.log, NAME.bleu and NAME.svg in the folder have, and options.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.analysis.curves import run_names
from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.results import markdown, runs
from fairseq_tiedemb.results.page import page
from fairseq_tiedemb.results.records import read_results, require_tables
from fairseq_tiedemb.results.summary import section
from fairseq_tiedemb.results.tables import read_tables

INTRODUCTION = (
    "Made by `fairseq-tiedemb report` from the recorded results. ↓ lower is better, ↑ higher; several seeds: mean ± "
    "standard deviation. A heading sorts its table."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the trainings, and where everything is."""
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="your own trainings")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: recipes; with RUN: this folder")
    parser.add_argument(
        "--fill", nargs="+", action="extend", type=Path, default=[], metavar="FILE", help="texts with marked parts"
    )
    parser.add_argument("--tables", type=Path, default=Path("recipes/tables"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    """Makes all texts first, then writes them, each whole or not at all, and prints their names."""
    if arguments.runs:
        if arguments.fill:
            raise ValueError(
                f"--fill: needs recorded results, whose figures the marks name; got RUN {arguments.runs[0]}. Use it "
                "without RUN."
            )
        texts = of_runs(arguments.runs, arguments.output or Path())
    else:
        texts = of_results(arguments, arguments.output or Path("recipes"))
    for path in texts:
        check_output(path, flag="--output", inputs=arguments.runs)
    for path, text in texts.items():
        with written_aside(path) as aside:
            aside.write_text(text, encoding="utf-8")
        print(path)
    return 0


def of_results(arguments: argparse.Namespace, output: Path) -> dict[Path, str]:
    """The texts that the recorded results make, by their files."""
    tables = read_tables(arguments.tables, flag="--tables")
    require_tables(arguments.results, tables, flag="--results")
    results = {table.name: read_results(arguments.results, table) for table in tables}
    sections = [section(table, results[table.name]) for table in tables]
    texts = {
        output / "RESULTS.md": markdown.document(sections),
        output / "report.html": page("Results of fairseq_tiedemb", INTRODUCTION, sections),
    }
    by_name = {table.name: table for table in tables}
    for path in arguments.fill:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(f"--fill: needs a text; got {path} ({error.strerror}). Use another path.") from error
        except UnicodeDecodeError as error:
            raise ValueError(
                f"--fill: needs a text in UTF-8; got {path} ({error}). Use iconv to make it one."
            ) from error
        texts[path] = markdown.fill(text, by_name, results, flag=f"--fill {path}")
    return texts


def of_runs(paths: list[Path], output: Path) -> dict[Path, str]:
    """The page of a user's own trainings."""
    trainings = [runs.read_training(path, label) for path, label in zip(paths, run_names(paths), strict=True)]
    introduction = "Made by `fairseq-tiedemb report` from logs and checkpoints. A heading sorts its table."
    return {output / "report.html": page("Trainings", introduction, runs.sections(trainings))}
