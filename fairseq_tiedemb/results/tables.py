"""What the tables of results look like: `recipes/tables/NAME.json`."""

import re
from dataclasses import dataclass
from pathlib import Path

from fairseq_tiedemb.results.fields import Fields, read_object

# Names of tables, rows and columns, which are names of files too.
NAME = re.compile(r"\w[\w.,=+-]*")
BETTER = ("lower", "higher")


@dataclass(frozen=True)
class Column:
    """A figure that each row has.

    Attributes:
        name: what commands call it.
        label: its heading.
        unit: of its values: `perplexity`, `BLEU`, `parameters`, ...
        better: `lower` or `higher`; None where neither is.
        digits: after the decimal point, as the paper has them.
    """

    name: str
    label: str
    unit: str
    better: str | None
    digits: int


@dataclass(frozen=True)
class Row:
    """What is trained or measured: one row of a paper's table, or one that stands beside them.

    Attributes:
        name: what commands call it.
        label: its heading, the paper's name for it where it has one.
        command: what measures it.
        paper: the paper's figures, by column.
    """

    name: str
    label: str
    command: str | None
    paper: dict[str, float]


@dataclass(frozen=True)
class Table:
    """A table of results.

    Attributes:
        name: of its file.
        order: its place among the tables; tables of one order follow their names.
        title: its heading.
        source: paper and table, or what else it follows.
        columns: its figures, in order.
        rows: in order.
        notes: paragraphs in Markdown: under which conditions, and what it says.
    """

    name: str
    order: float
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def column(self, name: str, *, flag: str) -> Column:
        """Returns the column of a name.

        Raises:
            ValueError: naming the flag and the columns, if there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        names = ", ".join(column.name for column in self.columns)
        raise ValueError(f"{flag}: needs a column of the table {self.name}; got {name}. Use {names}.")

    def row(self, name: str, *, flag: str) -> Row:
        """Returns the row of a name.

        Raises:
            ValueError: naming the flag and the rows, if there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise ValueError(f"{flag}: needs a row of the table {self.name}; got {name}. Use {names}.")


def read_table(path: Path) -> Table:
    """Reads the description of a table.

    Raises:
        ValueError: naming the file and the field, if one is missing, unknown or of another kind, or a name comes twice.
    """
    fields = read_object(path)
    columns = tuple(map(_column, fields.objects("columns")))
    rows = tuple(_row(each, columns) for each in fields.objects("rows"))
    for kind, names in (("columns", [column.name for column in columns]), ("rows", [row.name for row in rows])):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise fields.fault(kind, "names that are there once", twice[0])
    table = Table(
        name=path.stem,
        order=fields.number("order"),
        title=fields.text("title"),
        source=fields.text("source"),
        columns=columns,
        rows=rows,
        notes=fields.texts("notes"),
    )
    fields.end()
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


def _name(fields: Fields) -> str:
    name = fields.text("name")
    if not NAME.fullmatch(name):
        raise fields.fault("name", "letters, digits and any of _.,=+-", name)
    return name


def _column(fields: Fields) -> Column:
    column = Column(
        name=_name(fields),
        label=fields.text("label"),
        unit=fields.text("unit"),
        better=fields.choice("better", BETTER, optional=True),
        digits=fields.count("digits"),
    )
    fields.end()
    return column


def _row(fields: Fields, columns: tuple[Column, ...]) -> Row:
    figures = fields.object("paper", optional=True)
    paper = figures.numbers()
    names = [column.name for column in columns]
    for name in paper:
        if name not in names:
            raise figures.fault(name, f"one of the columns {', '.join(names)}", paper[name])
    row = Row(
        name=_name(fields), label=fields.text("label"), command=fields.text("command", optional=True), paper=paper
    )
    fields.end()
    return row
