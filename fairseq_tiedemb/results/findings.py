"""What papers claim, and what came out here: `recipes/findings.json`, one source for every text that tells it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from fairseq_tiedemb.results.fields import Name, read
from fairseq_tiedemb.results.grid import Cell, Grid, number, short
from fairseq_tiedemb.results.records import Result
from fairseq_tiedemb.results.summary import ENTERED, measured, seeds_of
from fairseq_tiedemb.results.tables import Table

# `{TABLE/ROW/COLUMN}` within a claim.
QUOTED = re.compile(r"\{([\w.,=+/-]+)\}")
# The word of FINDINGS, and what it means.
VERDICTS = {"holds": "holds", "fails": "does not", "open": "cannot be told", "unrun": "not run"}
# Columns that no table has: of every result with a usage, or a learning curve.
CPU_MINUTES, LAST_TRAIN = "cpu-minutes", "last-train"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a source says of something.

    Attributes:
        claim: in Markdown.
        table: where the figures are.
        verdict: a word of `VERDICTS`.
        there: the source's figures.
        here: the figures of this project, as `{TABLE/ROW/COLUMN}`.
        remark: conditions, reasons, a link to a proof.
        seeds: how many the figures are of; counted.
    """

    claim: str
    table: Name | None = None
    verdict: Literal["holds", "fails", "open", "unrun"]
    there: str = "–"
    here: str = "–"
    remark: str = ""
    seeds: str = "–"


@dataclass(frozen=True)
class Source:
    """A paper or a lecture, and its claims."""

    title: str
    short: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Findings:
    """All claims, what introduces them, and the titles of the subjects of tables."""

    subjects: dict[str, str] = field(default_factory=dict)
    introduction: str = "What papers say, and what came out here."
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Data:
    """Every table with its results, by the table's name."""

    tables: Mapping[str, Table]
    results: Mapping[str, Sequence[Result]]

    def results_of(self, name: str, *, flag: str) -> list[Result]:
        """The results of TABLE/ROW/COLUMN that have the column."""
        table, row, column = self._place(name, flag=flag)
        return [result for result in self.results[table.name] if result.row == row and _value(result, column) is not None]

    def quote(self, name: str, *, flag: str, mark: str = ENTERED) -> str:
        """The figure TABLE/ROW/COLUMN: a value, or the mean over seeds; `mark` follows what was entered.

        Raises:
            ValueError: naming the flag, if table, row or column is unknown, or nothing was measured.
        """
        table, row, column = self._place(name, flag=flag)
        results = self.results_of(name, flag=flag)
        if not results:
            command = table.row(row, flag=flag).command
            raise ValueError(f"{flag}: needs a figure that was measured; got none for {name}. Run {command}.")
        entered = mark * any(result.entered for result in results)
        if column in (CPU_MINUTES, LAST_TRAIN):
            return short(fmean(_value(result, column) or 0 for result in results)) + entered
        described = table.column(column, flag=flag)
        return number(measured(described, results).value or 0, described.digits) + entered

    def _place(self, name: str, *, flag: str) -> tuple[Table, str, str]:
        parts = name.split("/")
        if parts[0] not in self.tables:
            raise ValueError(f"{flag}: needs a table; got {parts[0]}. Use {', '.join(self.tables)}.")
        if len(parts) != 3:
            raise ValueError(f"{flag}: needs TABLE, or TABLE/ROW/COLUMN; got {name}. Use one of the two.")
        table = self.tables[parts[0]]
        row = table.row(parts[1], flag=flag).name
        return table, row, parts[2] if parts[2] in (CPU_MINUTES, LAST_TRAIN) else table.column(parts[2], flag=flag).name


def read_findings(path: Path, data: Data) -> Findings:
    """Reads the claims and fills in their figures; without a file there are no claims.

    Raises:
        ValueError: naming the file and the field or the claim, if a field is missing, unknown or of another kind, or a
            figure is of no table or was not measured.
    """
    if not path.exists():
        return Findings()
    findings = read(Findings, path)
    sources = []
    for source in findings.sources:
        for claim in source.claims:
            if claim.table is not None and claim.table not in data.tables:
                raise ValueError(f"{path}: {claim.claim}: needs a table; got {claim.table}. Use {', '.join(data.tables)}.")
        sources.append(replace(source, claims=tuple(_filled(claim, data, path) for claim in source.claims)))
    return replace(findings, sources=tuple(sources))


def seeds(here: str, data: Data, *, flag: str) -> str:
    """How many seeds the figures of a text are of: `1`, or `1-3`."""
    counts = {len(seeds_of(data.results_of(name, flag=flag))) for name in QUOTED.findall(here)} - {0}
    return "-".join(map(str, sorted({min(counts), max(counts)}))) if counts else "–"


def claims_grid(sources: Sequence[Source], places: Mapping[str, str]) -> Grid:
    """Claims with their figures, seeds and verdicts, each with a link to its table."""
    rows = []
    for source in sources:
        for claim in source.claims:
            texts = (source.short, linked(claim, places), claim.there, claim.here, claim.seeds, VERDICTS[claim.verdict])
            rows.append(tuple(map(Cell, texts)))
    return Grid(("source", "claim", "there", "here", "seeds", "verdict"), tuple(rows))


def linked(claim: Claim, places: Mapping[str, str]) -> str:
    """A claim as a link to its table."""
    return f"[{claim.claim}]({places[claim.table]})" if claim.table else claim.claim


def _filled(claim: Claim, data: Data, path: Path) -> Claim:
    flag = f"{path}: {claim.claim}"

    def quoted(text: str) -> str:
        return QUOTED.sub(lambda found: data.quote(found[1], flag=flag), text)

    count = seeds(claim.here, data, flag=flag)
    return replace(claim, there=quoted(claim.there), here=quoted(claim.here), remark=quoted(claim.remark), seeds=count)


def _value(result: Result, column: str) -> float | None:
    if column == CPU_MINUTES:
        return result.usage.cpu_seconds / 60 if result.usage else None
    if column == LAST_TRAIN:
        points = result.curve.get("train", {})
        return points[max(points)] if points else None
    return result.figures[column].value if column in result.figures else None
