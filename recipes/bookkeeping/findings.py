"""What papers claim, and what came out here: `recipes/findings.json`, one source for every text that tells it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from fairseq_tiedemb.results.grid import Cell, Grid, number

from .data import DERIVED, Column, Result, Table, named
from .summary import figures_of, measured, seeds_of

# `{TABLE/ROW/COLUMN}` within a claim, or several of them, whose mean it is.
QUOTED = re.compile(r"\{([\w.,=+/-]+(?: [\w.,=+/-]+)*)\}")
CHANGED = re.compile(f"{QUOTED.pattern} → {QUOTED.pattern}")
BRACKETS = "In brackets: change ± half its 95 % interval, over seeds (Welch's) or pairs."
VERDICTS = ("holds", "does not hold", "cannot be told", "not run")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a source says of something.

    Attributes:
        claim: in Markdown.
        table: where the figures are.
        verdict: one of `VERDICTS`.
        there: the source's figures.
        here: the figures of this project, as `{TABLE/ROW/COLUMN}`. Of two with ` → ` between them the change is added.
        remark: conditions, reasons, a link to a proof.
        seeds: how many the figures are of; counted.
    """

    claim: str
    table: str | None = None
    verdict: str
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

    def find(self, name: str, *, flag: str) -> tuple[Column, list[Result]]:
        """The column of TABLE/ROW/COLUMN, and the results that have it.

        Raises:
            ValueError: naming the flag, if table, row or column is unknown, or nothing was measured.
        """
        table, *rest = name.split("/")
        if table not in self.tables:
            raise ValueError(f"{flag}: needs a table; got {table}. Use {', '.join(self.tables)}.")
        if len(rest) != 2:
            raise ValueError(f"{flag}: needs TABLE, or TABLE/ROW/COLUMN; got {name}. Use one of the two.")
        row = self.tables[table].row(rest[0], flag=flag)
        column = DERIVED.get(rest[1]) or self.tables[table].column(rest[1], flag=flag)
        results = [result for result in self.results[table] if result.row == row.name and result.figure(column.name)]
        if not results:
            raise ValueError(f"{flag}: needs a figure that was measured; got none for {name}. Run {row.command}.")
        return column, results

    def quote(self, names: str, *, flag: str) -> str:
        """The figure TABLE/ROW/COLUMN, or the mean of several, which spaces are between."""
        column, _ = self.find(names.split()[0], flag=flag)
        means = [measured(*self.find(name, flag=flag)).value or 0 for name in names.split()]
        return number(means[0] if len(means) == 1 else fmean(means), column.digits)

    def change(self, before: str, after: str, *, flag: str) -> str:
        """How far a figure moved, ` (-2.8 ± 0.6)`, with half of the 95 % interval; empty where seeds give none.

        Of several figures, which are pairs in their order, it is the mean change, with the interval of a paired t test.
        """
        from scipy.stats import ttest_1samp, ttest_ind  # which take a moment to import

        names, others = before.split(), after.split()
        if [name.rpartition("/")[2] for name in names] != [name.rpartition("/")[2] for name in others]:
            raise ValueError(f"{flag} with {{{before}}} → {{{after}}}, which are not of the same columns")
        column, _ = self.find(names[0], flag=flag)
        found = [[self.find(name, flag=flag)[1] for name in side] for side in (names, others)]
        old, new = ([[each.value for each in figures_of(column, own)] for own in side] for side in found)
        if len(names) > 1:
            test = ttest_1samp([fmean(two) - fmean(one) for one, two in zip(old, new, strict=True)], 0)
        elif min(len(old[0]), len(new[0])) > 1 and max(len({*old[0]}), len({*new[0]})) > 1:
            test = ttest_ind(new[0], old[0], equal_var=False)
        else:
            return ""
        low, high = test.confidence_interval()
        sign = "+" if high > -low else ""
        return f" ({sign}{number((low + high) / 2, column.digits)} ± {number((high - low) / 2, column.digits)})"


def read_findings(path: Path, data: Data) -> Findings:
    """Reads the claims and fills in their figures; without a file there are no claims.

    Raises:
        ValueError: naming the file and the field or the claim, if a field is missing, unknown or of another kind, or a
            figure is of no table or was not measured.
    """
    if not path.exists():
        return Findings()
    with named(path):
        values = json.loads(path.read_text(encoding="utf-8"))
        sources = []
        for source in values.pop("sources"):
            claims = tuple(_filled(Claim(**each), data) for each in source["claims"])
            sources.append(Source(source["title"], source["short"], claims))
        return Findings(sources=tuple(sources), **values)


def claims_grid(sources: Sequence[Source], places: Mapping[str, str]) -> Grid:
    """Claims with their figures, seeds and verdicts, each with a link to its table."""
    rows = []
    for source in sources:
        for claim in source.claims:
            texts = (source.short, linked(claim, places), claim.there, claim.here, claim.seeds, claim.verdict)
            rows.append(tuple(map(Cell, texts)))
    return Grid(("source", "claim", "there", "here", "seeds", "verdict"), tuple(rows))


def counted(sources: Sequence[Source]) -> list[str]:
    """A paragraph on how many claims have which verdict, and how to read them; none without claims."""
    verdicts = [claim.verdict for source in sources for claim in source.claims]
    counts = [f"{verdict} {verdicts.count(verdict)}" for verdict in VERDICTS if verdict in verdicts]
    return [f"Verdicts on {len(verdicts)} claims: {', '.join(counts)}. {BRACKETS}"] if counts else []


def linked(claim: Claim, places: Mapping[str, str]) -> str:
    """A claim as a link to its table."""
    return f"[{claim.claim}]({places[claim.table]})" if claim.table else claim.claim


def _filled(claim: Claim, data: Data) -> Claim:
    flag = f"the claim `{claim.claim}`"
    if claim.verdict not in VERDICTS:
        raise ValueError(f"{flag} with the verdict {claim.verdict}, which is none of {', '.join(VERDICTS)}")
    if claim.table is not None and claim.table not in data.tables:
        raise ValueError(f"{flag} of the table {claim.table}, which is none of {', '.join(data.tables)}")

    def quoted(text: str) -> str:
        text = CHANGED.sub(lambda pair: pair[0] + data.change(pair[1], pair[2], flag=flag), text)
        return QUOTED.sub(lambda mark: data.quote(mark[1], flag=flag), text)

    here, remark = quoted(claim.here), quoted(claim.remark)
    figures = " ".join(QUOTED.findall(claim.here)).split()
    counts = {len(seeds_of(data.find(name, flag=flag)[1])) for name in figures} - {0}
    seeds = "-".join(map(str, sorted({min(counts), max(counts)}))) if counts else "–"
    return replace(claim, here=here, remark=remark, seeds=seeds)
