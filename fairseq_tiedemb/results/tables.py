"""What the tables of results look like: `recipes/tables/NAME.json`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from fairseq_tiedemb.results.fields import NAME, Name, fault, read


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

    name: Name
    label: str
    unit: str
    digits: int
    better: Literal["lower", "higher"] | None = None


CPU_MINUTES = Column("cpu-minutes", "CPU minutes", "minutes", 1)
LAST_TRAIN = Column("last-train", "training perplexity of the last epoch", "perplexity", 1)
# What results have beside the columns of their tables.
DERIVED = {column.name: column for column in (CPU_MINUTES, LAST_TRAIN)}


@dataclass(frozen=True)
class Row:
    """What is trained or measured: one row of a paper's table, or one that stands beside them.

    Attributes:
        name: what commands call it.
        label: its heading, the paper's name for it where it has one.
        command: what measures it.
        needs: hardware and time, where they are not those of its table.
        paper: the paper's figures, by column.
    """

    name: Name
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
    subject: Name = "results"
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


def read_table(path: Path) -> Table:
    """Reads the description of a table.

    Raises:
        ValueError: naming the file and the field, if one is missing, unknown or of another kind, or a name comes twice.
    """
    table = read(Table, path, name=path.stem)
    columns = [column.name for column in table.columns]
    for kind, names in (("columns", columns), ("rows", [row.name for row in table.rows])):
        if not names:
            raise fault(path, kind, "one or more", [])
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise fault(path, kind, "names that are there once", twice[0])
    for number, row in enumerate(table.rows):
        for name, value in row.paper.items():
            if name not in columns:
                raise fault(path, f"rows[{number}].paper.{name}", f"one of the columns {', '.join(columns)}", value)
    return table


def read_tables(folder: Path, *, flag: str) -> list[Table]:
    """Reads all tables of a folder, in their order.

    Raises:
        ValueError: naming the flag, if there is no table; as `read_table`.
    """
    tables = [read_table(path) for path in folder.glob("*.json")]
    if not tables:
        raise ValueError(f"{flag}: needs a folder with tables, NAME.json; got {folder}, which has none. Use another.")
    return sorted(tables, key=lambda table: (table.order, table.name))


def find_table(folder: Path, name: str, *, flag: str) -> Table:
    """Reads the table of a name.

    Raises:
        ValueError: naming the tables, if there is none; as `read_table`.
    """
    path = folder / f"{name}.json"
    if not NAME.fullmatch(name) or not path.is_file():
        names = ", ".join(table.name for table in read_tables(folder, flag=flag))
        raise ValueError(f"TABLE: needs a table of {folder}; got {name}. Use {names}.")
    return read_table(path)
