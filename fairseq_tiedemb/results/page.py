"""Reports as one HTML file that asks nothing of a network."""

import base64
import re
from collections.abc import Sequence
from html import escape
from importlib import resources

from fairseq_tiedemb.results.chart import rounds_of, stroke, svg
from fairseq_tiedemb.results.grid import PAPER, Cell, Chart, Grid, Section

# Within a line of Markdown: code, bold, links to elsewhere or to a section, emphasis.
INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[([^\]]+)\]\((https?://[^)\s]+|#[\w.,=+-]+)\)|(?<!\w)\*([^*]+)\*(?!\w)")
# Columns with a longer text than this, in characters, are broken into lines.
LONG = 40
# What a chart's caption does not say of labels beyond the number of colours.
AGAIN = (
    " Where a colour comes again, there are dots: between long dashes in place of solid, between short ones of dashed."
)
# Nothing is fetched, whatever stands in the page.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(title: str, introduction: str, sections: Sequence[Section]) -> str:
    """The whole page.

    Args:
        title: its heading.
        introduction: a paragraph of Markdown.
        sections: its parts, in order.
    """
    files = resources.files(__package__)
    style, script = ((files / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    contents = "".join(f'<li><a href="#{escape(each.name)}">{inline(each.title)}</a></li>' for each in sections)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            "<body>",
            '<header><button id="theme" type="button" aria-label="Light or dark">◐</button>',
            f"<h1>{escape(title)}</h1>",
            f"<p>{inline(introduction)}</p></header>",
            *([f"<nav><ul>{contents}</ul></nav>"] if len(sections) > 1 else []),
            "<main>",
            *map(part, sections),
            "</main>",
            f"<script>\n{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def part(section: Section) -> str:
    """A section: table, charts, pictures, what is to be said of it, and what opens on demand."""
    lines = [f'<section id="{escape(section.name)}">', f"<h2>{inline(section.title)}</h2>", table(section.grid)]
    lines += map(figure, section.charts)
    for caption, path in section.pictures.items():
        # As an image, a picture runs no script and fetches nothing, whatever it holds.
        data = base64.b64encode(path.read_bytes()).decode()
        image = f'<img alt="{escape(caption)}" src="data:image/svg+xml;base64,{data}">'
        lines.append(f"<figure>{image}<figcaption>{inline(caption)}</figcaption></figure>")
    lines += [f"<p>{inline(paragraph)}</p>" for paragraph in section.paragraphs]
    for title, grid in section.details.items():
        lines.append(f"<details><summary>{inline(title)}</summary>\n{table(grid)}\n</details>")
    return "\n".join([*lines, "</section>"])


def table(grid: Grid) -> str:
    """A grid as a table that sorts by the column whose heading is chosen."""
    kinds = ["paper" if heading == PAPER else "" for heading in grid.headings]
    for row in grid.rows:
        for place, cell in enumerate(row):
            if len(cell.text) > LONG:
                kinds[place] = "text"
    classes = [f' class="{kind}"' if kind else "" for kind in kinds]
    head = "".join(
        f'<th scope="col"{kind}><button type="button">{inline(text)}</button></th>'
        for text, kind in zip(grid.headings, classes, strict=True)
    )
    lines = ['<div class="wide"><table>', f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for first, *rest in grid.rows:
        cells = "".join(map(_cell, rest, classes[1:]))
        lines.append(f'<tr><th scope="row"{classes[0]}>{inline(first.text)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def figure(chart: Chart) -> str:
    """A chart with its legend and caption."""
    rounds = rounds_of(chart)
    legend = "".join(
        f'<li><svg viewBox="0 0 44 8" aria-hidden="true"><line x1="2" x2="42" y1="4" y2="4" style="{stroke(*each)}"/>'
        f"</svg>{inline(label)}</li>"
        for label, each in rounds.items()
    )
    again = AGAIN if any(turn for turn, _ in rounds.values()) else ""
    caption = f"<figcaption>{inline(chart.caption + again)}</figcaption>"
    return f'<figure>{svg(chart)}<ul class="legend">{legend}</ul>{caption}</figure>'


def inline(text: str) -> str:
    """Markdown within a line as HTML: code, bold, emphasis, addresses; all else is text."""

    def element(found: re.Match[str]) -> str:
        code, bold, link, address, emphasis = found.groups()
        if code:
            return f"<code>{code}</code>"
        if bold:
            return f"<strong>{bold}</strong>"
        return f'<a href="{address}">{link}</a>' if link else f"<em>{emphasis}</em>"

    return INLINE.sub(element, escape(text))


def _cell(cell: Cell, kind: str) -> str:
    value = "" if cell.value is None else f' data-value="{cell.value!r}"'
    return f"<td{kind}{value}>{inline(cell.text)}</td>"
