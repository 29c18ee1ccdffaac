"""Tables, `recipes/tables/NAME.json`, and their results, `recipes/results/TABLE/ROW-SEED.json`."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from fairseq_tiedemb.results.environment import checkout, processor, versions
from fairseq_tiedemb.results.usage import Usage


@dataclass(frozen=True)
class Column:
    """A figure that each row has.

    Attributes:
        name: what commands call it.
        label: its heading.
        unit: of its values: `perplexity`, `BLEU`, `parameters`, ...
        digits: after the decimal point, as the paper has them.
        better: `lower` or `higher`; None where neither is.
    """

    name: str
    label: str
    unit: str
    digits: int
    better: str | None = None


CPU_MINUTES = Column("cpu-minutes", "CPU minutes", "minutes", 1)
LAST_TRAIN = Column("last-train", "training perplexity of the last epoch", "perplexity", 1)
# What results have beside the columns of their tables.
DERIVED = {column.name: column for column in (CPU_MINUTES, LAST_TRAIN)}


@dataclass(frozen=True)
class Row:
    """What is trained or measured: one row of a paper's table, or one that stands beside them.

    Attributes:
        name: what `record` calls it; also the name of a file.
        label: its heading, the paper's name for it where it has one.
        command: what measures it. The recipe accepts the words that stand there after its name.
        needs: hardware and time, where they are not those of its table.
        paper: the paper's figures, by column.
    """

    name: str
    label: str
    command: str | None = None
    needs: str | None = None
    paper: dict[str, float] = field(default_factory=dict)


T = TypeVar("T", Column, Row)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of results.

    Attributes:
        name: of its file.
        order: its place among the tables; tables of one order follow their names.
        subject: the page that it stands on.
        title: its heading.
        source: paper and table, or what else it follows.
        columns: its figures, in order.
        rows: in order.
        needs: hardware and time of a row.
        notes: paragraphs in Markdown: under which conditions, and what it says.
    """

    name: str
    order: float
    subject: str = "results"
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    needs: str | None = None
    notes: tuple[str, ...] = ()

    def column(self, name: str, *, flag: str) -> Column:
        """Returns the column of a name; as `row`."""
        return self._named("column", self.columns, name, flag)

    def row(self, name: str, *, flag: str) -> Row:
        """Returns the row of a name.

        Raises:
            ValueError: naming the flag and the rows, if there is none.
        """
        return self._named("row", self.rows, name, flag)

    def _named(self, kind: str, items: Sequence[T], name: str, flag: str) -> T:
        for item in items:
            if item.name == name:
                return item
        names = ", ".join(item.name for item in items)
        raise ValueError(f"{flag}: needs a {kind} of the table {self.name}; got {name}. Use {names}.")


@dataclass(frozen=True)
class Figure:
    """What was measured.

    Attributes:
        value: in `unit`.
        unit: that of its column; empty in what a log has.
        paper: the paper's figure that it stands beside.
        low: the lowest of several measurements of one result, of which `value` is the median.
        high: the highest.
        tokens: the number of tokens of a perplexity.
        signature: of a BLEU score, sacreBLEU's.
    """

    value: float
    unit: str = ""
    paper: float | None = None
    low: float | None = None
    high: float | None = None
    tokens: int | None = None
    signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The state of a machine and its software.

    Attributes:
        date: of the measurement, `YYYY-MM-DD`, UTC.
        commit: of the checkout; None without one.
        dirty: whether package or recipes differ from the commit.
        versions: of Python and of packages.
        processor: its name.
        accelerators: the names of the GPUs that trained.
    """

    date: str
    commit: str | None = None
    dirty: bool | None = None
    versions: dict[str, str]
    processor: str
    accelerators: tuple[str, ...] = ()


def environment(accelerators: tuple[str, ...]) -> Environment:
    """The environment of this process, now."""
    commit, dirty = checkout()
    return Environment(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=commit,
        dirty=dirty,
        versions=versions(),
        processor=processor(),
        accelerators=accelerators,
    )


@dataclass(frozen=True, kw_only=True)
class Result:
    """A row of a table, trained or measured once.

    Attributes:
        table: its name.
        row: its name.
        seed: of the training; None for what has none.
        figures: by column.
        command: what measured it.
        environment: where, when and with which versions.
        usage: CPU seconds and memory of the training.
        curve: perplexities, by `train` or the validation subset, then by epoch.
        note: what else is to be said of it.
        pictures: SVG files beside its own, by kind.
    """

    table: str
    row: str
    seed: int | None = None
    figures: dict[str, Figure]
    command: str
    environment: Environment
    usage: Usage | None = None
    curve: dict[str, dict[int, float]] = field(default_factory=dict)
    note: str | None = None
    pictures: dict[str, Path] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The name of its file, without the extension."""
        return self.row if self.seed is None else f"{self.row}-{self.seed}"

    def figure(self, column: str) -> Figure | None:
        """What was measured of a column of the table, or of `DERIVED`."""
        if column == CPU_MINUTES.name and self.usage:
            return Figure(self.usage.cpu_seconds / 60)
        if column == LAST_TRAIN.name and "train" in self.curve:
            return Figure(self.curve["train"][max(self.curve["train"])])
        return self.figures.get(column)


def read_tables(folder: Path, *, flag: str) -> list[Table]:
    """Reads all tables of a folder, in their order.

    Raises:
        ValueError: naming the flag, if there is no table, or a file and what is wrong with it.
    """
    tables = [read_table(path) for path in folder.glob("*.json")]
    if not tables:
        raise ValueError(f"{flag}: needs a folder with tables, NAME.json; got {folder}, which has none. Use another.")
    return sorted(tables, key=lambda table: (table.order, table.name))


def read_table(path: Path) -> Table:
    """Reads one table."""
    with named(path):
        values = json.loads(path.read_text(encoding="utf-8"))
        columns = tuple(Column(**each) for each in values.pop("columns"))
        rows = tuple(Row(**each) for each in values.pop("rows"))
        notes = tuple(values.pop("notes", ()))
        table = Table(name=path.stem, columns=columns, rows=rows, notes=notes, **values)
        for row in rows:
            for name in row.paper:
                table.column(name, flag=f"the paper's figures of {row.name}")
    return table


def read_results(folder: Path, table: Table) -> list[Result]:
    """Reads all results of a table, in the order of its rows, then by seed; none if it has no folder.

    Raises:
        ValueError: naming the file and what is wrong with it.
    """
    rows = [row.name for row in table.rows]
    results = [read_result(path, table) for path in (folder / table.name).glob("*.json")]
    return sorted(results, key=lambda result: (rows.index(result.row), result.seed is not None, result.seed or 0))


def read_result(path: Path, table: Table) -> Result:
    """Reads one result, which must agree with its table: row, columns, units, and the paper's figures."""
    with named(path):
        values = json.loads(path.read_text(encoding="utf-8"))
        figures = {name: Figure(**each) for name, each in values.pop("figures").items()}
        place, usage = values.pop("environment"), values.pop("usage", None)
        curve = {name: {int(epoch): ppl for epoch, ppl in of.items()} for name, of in values.pop("curve", {}).items()}
        result = Result(
            figures=figures,
            environment=Environment(**place | {"accelerators": tuple(place.get("accelerators", ()))}),
            usage=usage and Usage(**usage | {"commits": tuple(usage.get("commits", ()))}),
            curve=curve,
            pictures=pictures_beside(path),
            **values,
        )
        row = table.row(result.row, flag="row")
        for name, figure in figures.items():
            due = (table.column(name, flag="figures").unit, row.paper.get(name))
            if (figure.unit, figure.paper) != due:
                raise ValueError(f"{name} with unit and paper's figure {(figure.unit, figure.paper)}, its table {due}")
        if not result.command:
            raise ValueError("no command")
        if (result.table, result.stem) != (path.parent.name, path.stem):
            raise ValueError(f"a result of {result.table}/{result.stem}")
    return result


def write_result(result: Result, path: Path) -> None:
    """Writes a result: the same result makes the same bytes. None and empty objects are left out."""
    curve = {name: dict(sorted(points.items())) for name, points in result.curve.items()}
    values = _without_none(dataclasses.asdict(replace(result, curve=curve, pictures={})))
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def pictures_beside(path: Path) -> dict[str, Path]:
    """The pictures of a result by kind: files NAME.KIND.svg beside NAME.json, where a kind has no dot."""
    beside = {each.name[len(path.stem) + 1 : -len(".svg")]: each for each in path.parent.glob(f"{path.stem}.*.svg")}
    return {kind: beside[kind] for kind in sorted(beside) if "." not in kind}


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Lets the errors of reading a file name it.

    Raises:
        ValueError: instead of what a file raises that is no JSON, or lacks a field, or has another.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: needs what recipes/README.md says of its fields; got {error}. Mend it.") from error


def _without_none(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_none(each) for name, each in value.items() if each is not None and each != {}}
