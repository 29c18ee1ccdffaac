"""Reports in Markdown, and the marked parts of a text that quotes results."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fairseq_tiedemb.results.findings import VERDICTS, Data, Findings, Source, claims_grid, linked
from fairseq_tiedemb.results.grid import Grid, Section
from fairseq_tiedemb.results.summary import ENTERED, NOTHING, grid

# `<!-- results:TABLE COLUMN ... -->` a table, `<!-- results:TABLE/ROW/COLUMN -->` a figure; `<!-- /results -->` ends.
MARKED = re.compile(r"(<!-- results:([^\s>]*)((?: [^\s>]+)*) -->)(.*?)(<!-- /results -->)", re.DOTALL)
BEGINS = re.compile(r"<!-- results:")
# The folder of the pages of subjects, and the page of what was not run.
PAGES, NOT_RUN = "pages", "not-run.md"
MADE = "Made by `make report`; change [the data]({}README.md#results) instead."
NOTATION = "↓ lower is better, ↑ higher. Several seeds: mean ± standard deviation."
DAGGER = f"{ENTERED} entered by hand from the README of version 0.1.1, and not recorded since."


def documents(sections: Sequence[Section], findings: Findings, facts: Sequence[str]) -> dict[str, str]:
    """The texts of a report by their names: all claims, a page for each subject, and what was not run.

    Args:
        sections: the tables.
        findings: claims, and titles of subjects.
        facts: sentences about all results.
    """
    titles = findings.subjects | {each.subject: each.subject.capitalize() for each in sections if each.subject not in findings.subjects}
    pages = {name: [each for each in sections if each.subject == name] for name in titles}
    texts = {"RESULTS.md": overview(pages, titles, findings, facts)}
    for name, own in pages.items():
        texts[f"{PAGES}/{name}.md"] = subject_page(titles[name], own, facts[-1:])
    texts[f"{PAGES}/{NOT_RUN}"] = page_of_not_run(sections)
    if findings.sources:
        texts["FINDINGS.md"] = page_of_findings(findings, places(sections))
    return texts


def places(sections: Sequence[Section]) -> dict[str, str]:
    """Where the tables are, seen from RESULTS.md."""
    return {
        each.name: f"{PAGES}/{NOT_RUN if each.grid is None else f'{each.subject}.md'}#{each.name}" for each in sections
    }


def overview(pages: Mapping[str, Sequence[Section]], titles: Mapping[str, str], findings: Findings, facts: Sequence[str]) -> str:
    """RESULTS.md: the claims, and where all tables are, under the anchors that they had here."""
    where = places([section for own in pages.values() for section in own])
    lines = ["# Results", "", f"{MADE.format('')} Reasons and conditions of the verdicts: [FINDINGS](FINDINGS.md).", ""]
    lines += [table(claims_grid(findings.sources, where)), ""] if findings.sources else []
    lines += ['<a name="entered"></a>', "", DAGGER, "", "## Tables", ""]
    for name, own in pages.items():
        links = "; ".join(f'<a name="{each.name}"></a>[{each.title}]({where[each.name]})' for each in own)
        lines.append(f"- **[{titles[name]}]({PAGES}/{name}.md)**: {links}")
    return "\n".join([*lines, f"- **[Not run]({PAGES}/{NOT_RUN})**: hardware and time that each row needs", "", *facts, ""])


def subject_page(title: str, sections: Sequence[Section], facts: Sequence[str]) -> str:
    """The tables of a subject, but for rows that were not run."""
    run = [section for section in sections if section.grid is not None]
    rest = [f"[{each.title}]({NOT_RUN}#{each.name})" for each in sections if each.grid is None]
    lines = [f"# {title}", "", f"{MADE.format('../')} {NOTATION}", "", *facts, ""]
    lines += [f"- [{section.title}](#{section.name})" for section in run]
    lines += ["- Not run: " + "; ".join(rest)] if rest else []
    return "\n".join([*lines, "", *map(part, run)])


def part(section: Section) -> str:
    """A section: its table first, then what is to be said of it."""
    lines = [f'<a name="{section.name}"></a>', "", f"## {section.title}", ""]
    lines += [table(section.grid)] if section.grid else []
    for paragraph in section.paragraphs:
        lines += ["", paragraph]
    if section.missing:
        lines += ["", f"Not run: [{len(section.missing.rows)} rows]({NOT_RUN}#{section.name})."]
    return "\n".join(lines) + "\n"


def page_of_not_run(sections: Sequence[Section]) -> str:
    """One list of all rows that were not run, with what they need."""
    lines = ["# Not run", "", f"{MADE.format('../')} The papers' figures of these rows are on the page build/report.html.", ""]
    lines += ["| table | rows | hardware and time | recipe |", "| --- | --- | --- | --- |"]
    for section in sections:
        alike: dict[tuple[str, str], list[str]] = {}
        for row in section.missing.rows if section.missing else ():
            cells = dict(zip(section.missing.headings if section.missing else (), row, strict=True))
            needs, command = (cells[name].text if name in cells else NOTHING.text for name in ("hardware and time", "command"))
            found = re.search(r"recipes/([\w./-]+)", command)
            recipe = f"[{found[1]}](../{found[1]})" if found else command
            alike.setdefault((needs, recipe), []).append(row[0].text)
        for number, ((needs, recipe), labels) in enumerate(alike.items()):
            anchor = "" if number else f'<a name="{section.name}"></a>'
            lines.append(f"| {anchor}{section.title} | {'; '.join(labels)} | {needs} | {recipe} |")
    return "\n".join([*lines, ""])


def page_of_findings(findings: Findings, where: Mapping[str, str]) -> str:
    """FINDINGS.md: a table for each source, with the conditions of the verdicts."""
    words = "; ".join(f"**{word}**" + f": {meaning}" * (meaning != word) for word, meaning in VERDICTS.items())
    lines = ["# Findings", "", findings.introduction, "", f"{words}. {DAGGER} {MADE.format('')}", ""]
    for source in findings.sources:
        lines += [f"## {source.title}", "", "| they say | verdict | there | here | remark |", "| --- | --- | --- | --- | --- |"]
        for claim in source.claims:
            lines.append(f"| {linked(claim, where)} | {claim.verdict} | {claim.there} | {claim.here} | {claim.remark} |")
        lines.append("")
    return "\n".join(lines)


def table(rows: Grid) -> str:
    """A grid as a Markdown table."""
    lines = [rows.headings, ("---",) * len(rows.headings), *([cell.text for cell in row] for row in rows.rows)]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def fill(text: str, data: Data, *, flag: str, explained: str) -> str:
    """Fills the marked parts of a text: tables with all of their columns or those named, and single figures.

    A figure is the value, or the mean over seeds, alone: how far it varies, the report tells.

    Args:
        text: Markdown with marks.
        data: what is quoted.
        flag: that errors name.
        explained: where RESULTS.md is, seen from the text; the dagger of a figure links there.

    Raises:
        ValueError: naming the mark, if it is of an unknown table, row or column, or has no end.
    """

    def filled(found: re.Match[str]) -> str:
        begin, name, names, _, end = found.groups()
        where = f"{flag}: {begin}"
        if "/" in name and not names:
            return f"{begin}{data.quote(name, flag=where, mark=f'[{ENTERED}]({explained}#entered)')}{end}"
        if "/" in name:
            raise ValueError(f"{where}: needs TABLE, or TABLE/ROW/COLUMN; got {name}{names}. Use one of the two.")
        if name not in data.tables:
            raise ValueError(f"{where}: needs a table; got {name}. Use {', '.join(data.tables)}.")
        described = data.tables[name]
        columns = [described.column(each, flag=where) for each in names.split()] or None
        return f"{begin}\n\n{table(grid(described, data.results[name], columns))}\n\n{end}"

    new = MARKED.sub(filled, text)
    if len(BEGINS.findall(text)) != len(MARKED.findall(text)):
        raise ValueError(
            f"{flag}: needs `<!-- /results -->` after each `<!-- results:NAME -->`; got one without. Add it."
        )
    return new


def path_between(text: Path, target: Path) -> str:
    """A path as a link in a text has it."""
    return Path(os.path.relpath(target, text.parent)).as_posix()
