"""Tables and results as small as they can be, and the programs that write and read them."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_pages
import pytest
import record

from fairseq_tiedemb import cli

TABLE: dict[str, Any] = {
    "order": 1,
    "subject": "language-models",
    "title": "A table",
    "source": "A & B (2016), table 1",
    "columns": [
        {"name": "test", "label": "test", "unit": "perplexity", "better": "lower", "digits": 1},
        {"name": "bleu", "label": "test", "unit": "BLEU", "better": "higher", "digits": 2},
        {"name": "parameters", "label": "parameters", "unit": "parameters", "digits": 0},
    ],
    "rows": [
        {"name": "small", "label": "Small", "command": "recipes/x.sh small", "paper": {"test": 114.5}},
        {"name": "wt", "label": "Small+WT", "command": "recipes/x.sh wt", "paper": {"test": 112.4}},
        {"name": "wt,UPDATES=5", "label": "Small+WT, 5 updates"},
    ],
    "notes": ["One `note`."],
}


class Project:
    """A folder with tables and results, and the programs on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.tables, self.results = folder / "tables", folder / "results"
        self.tables.mkdir()
        self.results.mkdir()
        self.write_table(TABLE)
        self.write_findings()

    def write_table(self, values: dict[str, Any], name: str = "small") -> Path:
        return self.write(f"tables/{name}.json", json.dumps(values))

    def write_findings(self, **claim: str) -> Path:
        claims = [{"claim": "it holds", "table": "small", "verdict": "holds"} | claim]
        sources = [{"title": "A & B: title", "short": "A & B", "claims": claims}]
        titles = {"language-models": "Language models"}
        return self.write("findings.json", json.dumps({"subjects": titles, "introduction": "i", "sources": sources}))

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def run(self, parser: Callable[[], argparse.ArgumentParser], *arguments: object) -> tuple[int, str]:
        """The exit status and what stderr says."""
        words = [*map(str, arguments), "--tables", str(self.tables), "--results", str(self.results)]
        return cli.main(words, parser()), self.capsys.readouterr().err

    def record(self, row: str, *arguments: object, seed: int | None = 1) -> tuple[int, str]:
        seeds = [] if seed is None else ["--seed", seed]
        return self.run(record.create_parser, "small", row, "--command", "recipes/x.sh", *seeds, *arguments)

    def make_pages(self, *arguments: object) -> tuple[int, str]:
        return self.run(make_pages.create_parser, "--output", self.folder, *arguments)

    def result(self, name: str) -> dict[str, Any]:
        return json.loads((self.results / "small" / f"{name}.json").read_text())

    def page(self) -> str:
        """The page of the table's subject."""
        return (self.folder / "pages/language-models.md").read_text()


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Project:
    return Project(tmp_path, capsys)
