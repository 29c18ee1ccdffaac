"""Make a report of recorded results, or of your own trainings.

Without RUN, from tables, results that `record` wrote and the claims (findings.json beside the tables' folder),
and from nothing else: OUTPUT/RESULTS.md, OUTPUT/FINDINGS.md, OUTPUT/pages, report.html, which needs no network, and the
parts of the files of --fill between `<!-- results:TABLE [COLUMN ...] -->` or `<!-- results:TABLE/ROW/COLUMN -->` and
`<!-- /results -->`. The same results make the same bytes. With RUN, logs of fairseq-train or folders with train.log or
checkpoints, the page alone: learning curves, best figures, what score-NAME.log, NAME.bleu and NAME.svg in the folder
have, and options.
"""

import argparse
import os
from pathlib import Path

from fairseq_tiedemb.analysis.curves import run_names
from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.results import markdown, runs
from fairseq_tiedemb.results.findings import Data, claims_grid, counted, read_findings
from fairseq_tiedemb.results.page import page
from fairseq_tiedemb.results.records import read_results, require_tables
from fairseq_tiedemb.results.summary import measured_on, rows_run, section
from fairseq_tiedemb.results.tables import read_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the trainings, and where everything is."""
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="your own trainings")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="default: recipes; with RUN: this folder")
    parser.add_argument("--html", type=Path, metavar="FOLDER", help="folder of report.html; default: that of --output")
    parser.add_argument(
        "--fill", nargs="+", action="extend", type=Path, default=[], metavar="FILE", help="texts with marked parts"
    )
    parser.add_argument("--tables", type=Path, default=Path("recipes/tables"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="default: %(default)s")


def run(arguments: argparse.Namespace) -> int:
    """Makes all texts first, then writes them, each whole or not at all, and prints their names."""
    output = arguments.output or Path("" if arguments.runs else "recipes")
    html = (arguments.html or output) / "report.html"
    if arguments.runs and arguments.fill:
        raise ValueError(
            f"--fill: needs recorded results, whose figures the marks name; got RUN {arguments.runs[0]}. Use it "
            "without RUN."
        )
    texts = {html: of_runs(arguments.runs)} if arguments.runs else of_results(arguments, output, html)
    for path in texts:
        if path.parent.exists() or path.parent != output / markdown.PAGES:  # which is made below
            flag = "--html" if path == html and arguments.html else "--output"
            check_output(path, flag=flag, inputs=arguments.runs)
    if not arguments.runs:
        (output / markdown.PAGES).mkdir(exist_ok=True)
    for path, text in texts.items():
        with written_aside(path) as aside:
            aside.write_text(text, encoding="utf-8")
        print(path)
    return 0


def of_results(arguments: argparse.Namespace, output: Path, html: Path) -> dict[Path, str]:
    """The texts that the recorded results make, by their files."""
    tables = read_tables(arguments.tables, flag="--tables")
    require_tables(arguments.results, tables, flag="--results")
    data = Data(
        {table.name: table for table in tables}, {each.name: read_results(arguments.results, each) for each in tables}
    )
    results = [result for own in data.results.values() for result in own]
    findings = read_findings(arguments.tables.parent / "findings.json", data)
    found = [section(table, data.results[table.name]) for table in tables]
    subjects = markdown.subjects(found, findings)
    sections = sorted(found, key=lambda each: list(subjects).index(each.subject))
    about = [rows_run(sections, results), measured_on(results)]
    measured = {
        name: measured_on([each for table in tables if table.subject == name for each in data.results[table.name]])
        for name in subjects
    }
    documents = markdown.documents(sections, findings, about, measured)
    texts = {output / name: text for name, text in documents.items()}
    texts[html] = page(
        "Results of fairseq_tiedemb",
        [*counted(findings.sources), *about, f"{markdown.NOTATION} A heading sorts its table."],
        sections,
        summary=claims_grid(findings.sources, {each.name: f"#{each.name}" for each in tables}),
        subjects=subjects,
    )
    for path in arguments.fill:
        explained = os.path.relpath(output / "RESULTS.md", path.parent)
        texts[path] = markdown.fill(text_of(path), data, flag=f"--fill {path}", explained=explained)
    return texts


def text_of(path: Path) -> str:
    """The text of a file with marks."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--fill: needs a text; got {path} ({error.strerror}). Use another path.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"--fill: needs a text in UTF-8; got {path} ({error}). Use iconv to make it one.") from error


def of_runs(paths: list[Path]) -> str:
    """The page of a user's own trainings."""
    trainings = [runs.read_training(path, label) for path, label in zip(paths, run_names(paths), strict=True)]
    introduction = "Made by `fairseq-tiedemb report` from logs and checkpoints. A heading sorts its table."
    return page("Trainings", [introduction], runs.sections(trainings))
