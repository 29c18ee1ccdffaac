"""One result: `recipes/results/TABLE/ROW-SEED.json`, written by `fairseq-tiedemb record`."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fairseq_tiedemb.results.environment import Environment
from fairseq_tiedemb.results.fields import Fields, read_object, write_object
from fairseq_tiedemb.results.tables import Column, Table
from fairseq_tiedemb.results.usage import Usage


@dataclass(frozen=True)
class Figure:
    """What was measured.

    Attributes:
        value: in `unit`.
        unit: that of its column.
        paper: the paper's figure that it stands beside.
        low: the lowest of several measurements of one result, of which `value` is the median.
        high: the highest.
        tokens: how many a perplexity is of.
        signature: of a BLEU score, sacreBLEU's.
    """

    value: float
    unit: str
    paper: float | None = None
    low: float | None = None
    high: float | None = None
    tokens: int | None = None
    signature: str | None = None


@dataclass(frozen=True)
class Result:
    """A row of a table, trained or measured once.

    Attributes:
        table: its name.
        row: its name.
        seed: of the training; None for what has none.
        figures: by column.
        entered: why it was entered, for one that no command recorded: such a result has no environment.
        command: what measured it.
        environment: where, when and with which versions.
        usage: CPU seconds and memory of the training.
        curve: perplexities, by `train` or the validation subset, then by epoch.
        note: what else is to be said of it.
        pictures: SVG files beside its own, by kind.
    """

    table: str
    row: str
    seed: int | None
    figures: dict[str, Figure]
    entered: str | None = None
    command: str | None = None
    environment: Environment | None = None
    usage: Usage | None = None
    curve: dict[str, dict[int, float]] = field(default_factory=dict)
    note: str | None = None
    pictures: dict[str, Path] = field(default_factory=dict)

    @property
    def stem(self) -> str:
        """The name of its file, without the extension."""
        return self.row if self.seed is None else f"{self.row}-{self.seed}"


def write_result(result: Result, path: Path) -> None:
    """Writes a result in the one form that the same result has."""
    values = {
        "table": result.table,
        "row": result.row,
        "seed": result.seed,
        "figures": {name: _without_none(asdict(figure)) for name, figure in result.figures.items()},
        "entered": result.entered,
        "command": result.command,
        "environment": None if result.environment is None else _without_none(asdict(result.environment)),
        "usage": None if result.usage is None else _without_none(asdict(result.usage)),
        "curve": {name: dict(sorted(curve.items())) for name, curve in result.curve.items()} or None,
        "note": result.note,
    }
    write_object(values, path)


def read_result(path: Path, table: Table) -> Result:
    """Reads a result of a table.

    Raises:
        ValueError: naming the file and the field, if one is missing, unknown, of another kind or not that of the table.
    """
    fields = read_object(path)
    if (name := fields.text("table")) != table.name:
        raise fields.fault("table", f"{table.name}, the name of its folder", name)
    row = table.row(fields.text("row"), flag=f"{path}: row")
    figures = fields.object("figures")
    found = {}
    for name in list(figures.rest):
        column = table.column(name, flag=f"{path}: figures")
        found[name] = _figure(figures.object(name), column, row.paper.get(name))
    if not found:
        raise fields.fault("figures", f"one or more of {', '.join(column.name for column in table.columns)}", {})
    entered = fields.text("entered", optional=True)
    result = Result(
        table=table.name,
        row=row.name,
        seed=fields.count("seed", optional=True),
        figures=found,
        entered=entered,
        command=fields.text("command", optional=entered is not None),
        environment=_optional(fields, "environment", Environment.of_fields, required=entered is None),
        usage=_optional(fields, "usage", Usage.of_fields),
        curve=_curve(fields.object("curve", optional=True)),
        note=fields.text("note", optional=True),
        pictures=pictures_beside(path),
    )
    fields.end()
    if path.stem != result.stem:
        raise ValueError(f"{path}: row, seed: needs a file {result.stem}.json; got {path.name}. Rename it.")
    return result


def read_results(folder: Path, table: Table) -> list[Result]:
    """Reads all results of a table, in the order of its rows, then by seed; none if it has no folder.

    Raises:
        ValueError: as `read_result`.
    """
    rows = [row.name for row in table.rows]
    results = [read_result(path, table) for path in (folder / table.name).glob("*.json")]
    return sorted(results, key=lambda result: (rows.index(result.row), result.seed is not None, result.seed or 0))


def require_tables(folder: Path, tables: list[Table], *, flag: str) -> None:
    """Checks that there is a folder of results, which may be empty, and that every result is of a table.

    Raises:
        ValueError: naming the flag, if there is no such folder, or the first folder of results that is of no table.
    """
    if not folder.is_dir():
        raise ValueError(f"{flag}: needs the folder of the results; got {folder}, which is none. Use that of `record`.")
    names = [table.name for table in tables]
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in names:
            raise ValueError(f"{path}: needs the name of a table; got {path.name}. Use {', '.join(names)}.")


def pictures_of(folder: Path, pattern: str) -> list[Path]:
    """The files of a folder whose names follow a pattern, in order; a folder of such a name is no picture."""
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def pictures_beside(path: Path) -> dict[str, Path]:
    """The pictures of a result by kind: files NAME.KIND.svg beside NAME.json, where a kind has no dot."""
    found = {
        each.name[len(path.stem) + 1 : -len(".svg")]: each for each in pictures_of(path.parent, f"{path.stem}.*.svg")
    }
    return {kind: each for kind, each in found.items() if "." not in kind}


def _figure(fields: Fields, column: Column, paper: float | None) -> Figure:
    figure = Figure(
        value=fields.number("value"),
        unit=fields.choice("unit", (column.unit,)),
        paper=fields.number("paper", optional=True),
        low=fields.number("low", optional=True),
        high=fields.number("high", optional=True),
        tokens=fields.count("tokens", optional=True),
        signature=fields.text("signature", optional=True),
    )
    fields.end()
    if figure.paper != paper:
        raise fields.fault("paper", f"the paper's figure of the table, {paper}", figure.paper)
    return figure


def _curve(fields: Fields) -> dict[str, dict[int, float]]:
    curves = {}
    for name in list(fields.rest):
        curve = fields.object(name)
        for epoch in curve.rest:
            if not epoch.isdecimal():
                raise curve.fault(epoch, "the number of an epoch", epoch)
        curves[name] = {int(epoch): value for epoch, value in curve.numbers().items()}
    return curves


def _optional(fields: Fields, name: str, read: Any, *, required: bool = False) -> Any:
    return read(fields.object(name)) if required or name in fields.rest else None


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
