"""Reports in Markdown, and the marked parts of a text that quotes results."""

import re
from collections.abc import Mapping, Sequence

from fairseq_tiedemb.results.grid import Cell, Grid, Section

from .findings import BRACKETS, Data, Findings, claims_grid, counted, linked
from .summary import grid

# `<!-- results:TABLE COLUMN ... -->` a table, `<!-- results:TABLE/ROW/COLUMN -->` a figure; `<!-- /results -->` ends.
MARKED = re.compile(r"(<!-- results:([^\s>]*)((?: [^\s>]+)*) -->)(.*?)(<!-- /results -->)", re.DOTALL)
BEGINS = re.compile(r"<!-- results:")
# Code, or the begin of HTML.
HTML = re.compile(r'`[^`]*`|<(?!a name="[\w.,=+-]+"></a>|/a>)')
# The folder of the pages of subjects, and the page of what was not run.
PAGES, NOT_RUN = "pages", "not-run.md"
MADE = "Made by `make report`; change [the data]({}README.md#results) instead."
NOTATION = "↓ lower is better, ↑ higher. Several seeds: mean ± standard deviation."


def documents(
    sections: Sequence[Section], findings: Findings, facts: Sequence[str], measured: Mapping[str, str]
) -> dict[str, str]:
    """The texts of a report by their names: all claims, a page for each subject, and what was not run.

    `measured` says of each subject where.
    """
    titles = subjects(sections, findings)
    pages = {name: [each for each in sections if each.subject == name] for name in titles}
    texts = {"RESULTS.md": overview(pages, titles, findings, facts)}
    for name, own in pages.items():
        texts[f"{PAGES}/{name}.md"] = subject_page(titles[name], own, measured[name])
    texts[f"{PAGES}/{NOT_RUN}"] = page_of_not_run(sections)
    if findings.sources:
        texts["FINDINGS.md"] = page_of_findings(findings, places(sections), facts)
    return texts


def subjects(sections: Sequence[Section], findings: Findings) -> dict[str, str]:
    """The titles of subjects; of those without one, their names."""
    return findings.subjects | {
        each.subject: each.subject.capitalize() for each in sections if each.subject not in findings.subjects
    }


def places(sections: Sequence[Section]) -> dict[str, str]:
    """Where the tables are, seen from RESULTS.md."""
    return {
        each.name: f"{PAGES}/{NOT_RUN if each.grid is None else f'{each.subject}.md'}#{each.name}" for each in sections
    }


def overview(
    pages: Mapping[str, Sequence[Section]], titles: Mapping[str, str], findings: Findings, facts: Sequence[str]
) -> str:
    """RESULTS.md: the claims, and links to the pages, under the anchors that the tables had here."""
    where = places([section for own in pages.values() for section in own])
    links = []
    for name, own in pages.items():
        anchors = "".join(f'<a name="{each.name}"></a>' for each in own)
        links.append(f"- {anchors}[{titles[name]}]({PAGES}/{name}.md)")
    links.append(f"- [Not run]({PAGES}/{NOT_RUN}): hardware and time that each row needs")
    made = f"{MADE.format('')} Reasons and conditions of the verdicts: [FINDINGS](FINDINGS.md)."
    claims = [*counted(findings.sources), table(claims_grid(findings.sources, where))]
    return text("# Results", made, *claims, *facts, "## Tables", "\n".join(links))


def subject_page(title: str, sections: Sequence[Section], measured: str) -> str:
    """The tables of a subject, but for rows that were not run."""
    links = [
        f"- [{each.title}](#{each.name})" if each.grid else f"- [{each.title}]({NOT_RUN}#{each.name}): not run"
        for each in sections
    ]
    parts = [part(section) for section in sections if section.grid]
    return text(f"# {title}", f"{MADE.format('../')} {NOTATION}", measured, "\n".join(links), *parts)


def part(section: Section) -> str:
    """A section: its table first, then what is to be said of it."""
    count = len(section.missing.rows) if section.missing else 0
    rest = [f"Not run: [{count} row{'s' * (count > 1)}]({NOT_RUN}#{section.name})."] if count else []
    tables = [table(section.grid)] if section.grid else []
    return "\n\n".join([f'<a name="{section.name}"></a>', f"## {section.title}", *tables, *section.paragraphs, *rest])


def page_of_not_run(sections: Sequence[Section]) -> str:
    """One list of all rows that were not run, with what they need."""
    lines = []
    for section in sections:
        alike: dict[tuple[str, str], list[str]] = {}
        for label, *_, needs, command in section.missing.rows if section.missing else ():
            recipe = re.sub(r"`.*?recipes/([\w./-]+).*`", r"[\1](../\1)", command.text)
            alike.setdefault((needs.text, recipe), []).append(label.text)
        title = f'<a name="{section.name}"></a>{section.title}'
        for (hardware, recipe), labels in alike.items():
            lines.append(tuple(map(Cell, (title, "; ".join(labels), hardware, recipe))))
            title = section.title
    made = f"{MADE.format('../')} The papers' figures of these rows are on the page build/report.html."
    return text("# Not run", made, table(Grid(("table", "rows", "hardware and time", "recipe"), tuple(lines))))


def page_of_findings(findings: Findings, where: Mapping[str, str], facts: Sequence[str]) -> str:
    """FINDINGS.md: a table for each source, with the conditions of the verdicts."""
    parts = []
    for source in findings.sources:
        rows = [(linked(each, where), each.verdict, each.there, each.here, each.remark) for each in source.claims]
        cells = tuple(tuple(map(Cell, row)) for row in rows)
        parts += [f"## {source.title}", table(Grid(("they say", "verdict", "there", "here", "remark"), cells))]
    return text("# Findings", findings.introduction, f"{facts[0]} {MADE.format('')} {BRACKETS}", *parts)


def text(*paragraphs: str) -> str:
    """A text of paragraphs."""
    return "\n\n".join(map(escaped, paragraphs)) + "\n"


def escaped(paragraph: str) -> str:
    """A paragraph without HTML but the anchors of tables; code stays as it is."""
    return HTML.sub(lambda found: found[0] if found[0][0] == "`" else "&lt;", paragraph)


def table(rows: Grid) -> str:
    """A grid as a Markdown table."""
    lines = [rows.headings, ("---",) * len(rows.headings), *([cell.text for cell in row] for row in rows.rows)]
    texts = [[escaped(each).replace("|", "\\|").replace("\n", " ") for each in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in texts)


def fill(content: str, data: Data, *, flag: str) -> str:
    """Fills the marked parts of a text: tables with all of their columns or those named, and single figures.

    A figure is the value, or the mean over seeds, alone: how far it varies, the report tells.

    Args:
        content: Markdown with marks.
        data: what is quoted.
        flag: that errors name.

    Raises:
        ValueError: naming the mark, if it is of an unknown table, row or column, or has no end.
    """

    def filled(found: re.Match[str]) -> str:
        begin, name, names, _, end = found.groups()
        where = f"{flag}: {begin}"
        if "/" in name and not names:
            return f"{begin}{data.quote(name, flag=where)}{end}"
        if "/" in name:
            raise ValueError(f"{where}: needs TABLE, or TABLE/ROW/COLUMN; got {name}{names}. Use one of the two.")
        if name not in data.tables:
            raise ValueError(f"{where}: needs a table; got {name}. Use {', '.join(data.tables)}.")
        described = data.tables[name]
        columns = [described.column(each, flag=where) for each in names.split()] or None
        return f"{begin}\n\n{table(grid(described, data.results[name], columns))}\n\n{end}"

    new = MARKED.sub(filled, content)
    if len(BEGINS.findall(content)) != len(MARKED.findall(content)):
        raise ValueError(
            f"{flag}: needs `<!-- /results -->` after each `<!-- results:NAME -->`; got one without. Add it."
        )
    return new
