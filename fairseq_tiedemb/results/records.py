"""One result: `recipes/results/TABLE/ROW-SEED.json`, written by `recipes/record.py`."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from fairseq_tiedemb.results.environment import Environment
from fairseq_tiedemb.results.fields import fault, read, write
from fairseq_tiedemb.results.tables import CPU_MINUTES, LAST_TRAIN, Table
from fairseq_tiedemb.results.usage import Usage


@dataclass(frozen=True)
class Figure:
    """What was measured.

    Attributes:
        value: in `unit`.
        unit: that of its column; empty in what a log has.
        paper: the paper's figure that it stands beside.
        low: the lowest of several measurements of one result, of which `value` is the median.
        high: the highest.
        tokens: how many a perplexity is of.
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
    seed: int | None = None
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

    def figure(self, column: str) -> Figure | None:
        """What was measured of a column of the table, or of `DERIVED`."""
        if column == CPU_MINUTES.name and self.usage:
            return Figure(self.usage.cpu_seconds / 60)
        if column == LAST_TRAIN.name and "train" in self.curve:
            return Figure(self.curve["train"][max(self.curve["train"])])
        return self.figures.get(column)


def write_result(result: Result, path: Path) -> None:
    """Writes a result: the same result makes the same bytes."""
    curve = {name: dict(sorted(points.items())) for name, points in result.curve.items()}
    write(replace(result, curve=curve, pictures={}), path)


def read_result(path: Path, table: Table) -> Result:
    """Reads a result of a table.

    Raises:
        ValueError: naming the file and the field, if one is missing, unknown, of another kind or not that of the table.
    """
    result = read(Result, path, pictures=pictures_beside(path))
    if result.table != table.name:
        raise fault(path, "table", f"{table.name}, the name of its folder", result.table)
    row = table.row(result.row, flag=f"{path}: row")
    for name, figure in result.figures.items():
        unit, paper = table.column(name, flag=f"{path}: figures").unit, row.paper.get(name)
        if figure.unit != unit:
            raise fault(path, f"figures.{name}.unit", f"{unit}, the column's", figure.unit)
        if figure.paper != paper:
            raise fault(path, f"figures.{name}.paper", f"the paper's figure of the table, {paper}", figure.paper)
    if not result.figures:
        names = ", ".join(column.name for column in table.columns)
        raise fault(path, "figures", f"one or more of {names}", {})
    for name in ("command", "environment") if result.entered is None else ():
        if getattr(result, name) is None:
            raise fault(path, name, "a value, or `entered` with the reason", None)
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
