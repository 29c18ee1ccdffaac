"""Make the texts and the page of the recorded results.

From tables, results that record.py wrote and the claims (findings.json beside the results' folder, if any), and from
nothing else: OUTPUT/RESULTS.md, OUTPUT/FINDINGS.md, OUTPUT/pages, report.html, which needs no network, and the parts of
the files of --fill between `<!-- results:TABLE [COLUMN ...] -->` or `<!-- results:TABLE/ROW/COLUMN -->` and
`<!-- /results -->`. The same results make the same bytes.
"""

import argparse
import sys
from pathlib import Path

from bookkeeping import texts
from bookkeeping.data import read_results, read_tables
from bookkeeping.findings import Data, claims_grid, counted, read_findings
from bookkeeping.summary import measured_on, rows_run, section

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.results.page import page


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the folders and of the texts with marks."""
    parser = argparse.ArgumentParser("make_pages.py", description=__doc__)
    parser.set_defaults(run=run, exact=False)
    parser.add_argument("--output", type=Path, default=Path("recipes"), metavar="FOLDER", help="default: %(default)s")
    parser.add_argument("--html", type=Path, metavar="FOLDER", help="folder of report.html; default: that of --output")
    parser.add_argument(
        "--fill", nargs="+", action="extend", type=Path, default=[], metavar="FILE", help="texts with marked parts"
    )
    parser.add_argument("--tables", type=Path, default=Path("recipes/tables"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, default=Path("recipes/results"), help="default: %(default)s")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Makes all texts first, then writes them, each whole or not at all, and prints their names."""
    made = of_results(arguments)
    (arguments.output / texts.PAGES).mkdir(exist_ok=True)
    for path in made:
        check_output(path, flag="--output")
    for path, text in made.items():
        with written_aside(path) as aside:
            aside.write_text(text, encoding="utf-8")
        print(path)
    return 0


def of_results(arguments: argparse.Namespace) -> dict[Path, str]:
    """The texts that the recorded results make, by their files."""
    output, html = arguments.output, (arguments.html or arguments.output) / "report.html"
    tables = read_tables(arguments.tables, flag="--tables")
    strangers = {path.name for path in arguments.results.iterdir()} - {table.name for table in tables}
    if strangers:
        raise ValueError(
            f"--results: needs a folder a table; got {', '.join(strangers)}. Write its table, or remove it."
        )
    data = Data(
        {table.name: table for table in tables}, {each.name: read_results(arguments.results, each) for each in tables}
    )
    results = [result for own in data.results.values() for result in own]
    findings = read_findings(arguments.results.parent / "findings.json", data)  # beside the results that it quotes
    sections = [section(table, data.results[table.name]) for table in tables]
    subjects = texts.subjects(sections, findings)
    sections.sort(key=lambda each: list(subjects).index(each.subject))
    about = [rows_run(sections, results), measured_on(results)]
    measured = {
        name: measured_on([each for table in tables if table.subject == name for each in data.results[table.name]])
        for name in subjects
    }
    documents = texts.documents(sections, findings, about, measured)
    made = {output / name: text for name, text in documents.items()}
    made[html] = page(
        "Results of fairseq_tiedemb",
        [*counted(findings.sources), *about, f"{texts.NOTATION} A heading sorts its table."],
        sections,
        summary=claims_grid(findings.sources, {each.name: f"#{each.name}" for each in tables}),
        subjects=subjects,
    )
    for path in arguments.fill:
        content = path.read_text(encoding="utf-8")
        made[path] = texts.fill(content, data, flag=f"--fill {path}")
    return made


if __name__ == "__main__":
    sys.exit(main(parser=create_parser()))
