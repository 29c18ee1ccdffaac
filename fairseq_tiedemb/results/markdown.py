"""Reports in Markdown, and the marked parts of a text that quotes results."""

import re
from collections.abc import Mapping, Sequence

from fairseq_tiedemb.results.grid import Grid, Section, number
from fairseq_tiedemb.results.records import Result
from fairseq_tiedemb.results.summary import grid, measured
from fairseq_tiedemb.results.tables import Table

# `<!-- results:TABLE COLUMN ... -->` a table, `<!-- results:TABLE/ROW/COLUMN -->` a figure; `<!-- /results -->` ends.
MARKED = re.compile(r"(<!-- results:([^\s>]*)((?: [^\s>]+)*) -->)(.*?)(<!-- /results -->)", re.DOTALL)
BEGINS = re.compile(r"<!-- results:")

HEAD = """\
# Results

Made by `make report` from [tables](tables) and [results](results), and from nothing else: change those. What a recipe
measures, it records there. Several seeds: mean ± standard deviation. Not run: nobody has yet. The same with learning
curves: [report.html](report.html).
"""


def document(sections: Sequence[Section]) -> str:
    """The whole report."""
    contents = "".join(f"- [{section.title}](#{section.name})\n" for section in sections)
    return "\n".join([HEAD, contents, *map(part, sections)])


def part(section: Section) -> str:
    """A section: its table first, then what is to be said of it."""
    lines = [f'<a name="{section.name}"></a>', "", f"## {section.title}", "", table(section.grid)]
    for paragraph in section.paragraphs:
        lines += ["", paragraph]
    for title, rows in section.details.items():
        lines += ["", f"<details><summary>{title}</summary>", "", table(rows), "", "</details>"]
    return "\n".join(lines) + "\n"


def table(rows: Grid) -> str:
    """A grid as a Markdown table."""
    lines = [rows.headings, ("---",) * len(rows.headings), *([cell.text for cell in row] for row in rows.rows)]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def fill(text: str, tables: Mapping[str, Table], results: Mapping[str, Sequence[Result]], *, flag: str) -> str:
    """Fills the marked parts of a text: tables with all of their columns or those named, and single figures.

    A figure is the value, or the mean over seeds, alone: how far it varies, the report tells.

    Args:
        text: Markdown with marks.
        tables: by name.
        results: by name of the table.
        flag: that errors name.

    Raises:
        ValueError: naming the mark, if it is of an unknown table, row or column, or has no end.
    """

    def filled(found: re.Match[str]) -> str:
        begin, name, names, _, end = found.groups()
        table_name, *rest = name.split("/")
        if table_name not in tables:
            raise ValueError(f"{flag}: {begin}: needs a table; got {table_name}. Use {', '.join(tables)}.")
        described, own = tables[table_name], results[table_name]
        where = f"{flag}: {begin}"
        if len(rest) == 2 and not names:
            row, column = described.row(rest[0], flag=where), described.column(rest[1], flag=where)
            cell = measured(column, [result for result in own if result.row == row.name])
            if cell.value is None:
                raise ValueError(f"{where}: needs a figure that was measured; got none. Run {row.command}.")
            return f"{begin}{number(cell.value, column.digits)}{end}"
        if rest:
            raise ValueError(f"{where}: needs TABLE, or TABLE/ROW/COLUMN; got {name}{names}. Use one of the two.")
        columns = [described.column(each, flag=where) for each in names.split()] or None
        return f"{begin}\n\n{table(grid(described, own, columns))}\n\n{end}"

    new = MARKED.sub(filled, text)
    if len(BEGINS.findall(text)) != len(MARKED.findall(text)):
        raise ValueError(
            f"{flag}: needs `<!-- /results -->` after each `<!-- results:NAME -->`; got one without. Add it."
        )
    return new
