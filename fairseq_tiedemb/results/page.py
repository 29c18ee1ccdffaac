"""Reports as one HTML file that fetches nothing."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup, escape

from fairseq_tiedemb.analysis.curves import Series, draw
from fairseq_tiedemb.results.grid import PAPER, Grid, Section

# Within a line of Markdown: code, bold, links, emphasis.
INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[([^\]]+)\]\(([^)\s]+)\)|(?<!\w)\*([^*]+)\*(?!\w)")
# Where links may lead: elsewhere, or to a section. Of other links the text stays.
FOLLOWED = re.compile(r"https?://.*|#[\w.,=+-]+")
LONG = 40  # characters; columns with a longer text are broken into lines
# Nothing is fetched, whatever stands in the page.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
THEME = {"#ffffff": "none", "#000000": "currentColor"}  # what a chart takes from the page, light or dark


def page(
    title: str,
    introduction: Sequence[str],
    sections: Sequence[Section],
    *,
    summary: Grid | None = None,
    subjects: Mapping[str, str] | None = None,
) -> str:
    """The whole page: paragraphs of Markdown, a summary, and sections, of which a reader can choose a subject."""
    files = resources.files(__package__)
    template, style, script = ((files / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"inline": inline, "picture": picture}
    environment.globals |= {"chart": chart, "classes": classes}
    own = {"policy": Markup(POLICY), "style": Markup(style), "script": Markup(script)}
    return environment.from_string(template).render(
        own, title=title, introduction=introduction, sections=sections, summary=summary, subjects=subjects or {}
    )


def classes(grid: Grid) -> list[Markup]:
    """The class attribute of each column: the paper's figures, and long texts."""
    kinds = {place: "paper" for place, heading in enumerate(grid.headings) if heading == PAPER}
    kinds |= {place: "text" for row in grid.rows for place, cell in enumerate(row) if len(cell.text) > LONG}
    return [Markup(f' class="{kinds[place]}"' if place in kinds else "") for place in range(len(grid.headings))]


def chart(series: Sequence[Series], name: str) -> Markup:
    """Learning curves as SVG in the colours of the page; the same curves make the same text."""
    from matplotlib import rc_context

    stream = io.StringIO()
    # Text stays text, in the page's font; names of parts are the chart's own.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        draw(series, stream, picture_format="svg")
    text = re.sub(r"<metadata>.*?</metadata>", "", stream.getvalue(), flags=re.DOTALL)
    for color, own in THEME.items():
        text = text.replace(color, own)
    return Markup(shortened(text[text.index("<svg") :]).replace("<svg ", '<svg role="img" ', 1))


def picture(path: Path) -> str:
    """A picture in base64. As an image it runs no script and fetches nothing, whatever it holds."""
    return base64.b64encode(shortened(path.read_bytes().decode("latin-1")).encode("latin-1")).decode()


def shortened(svg: str) -> str:
    """An SVG with the digits and spaces that its size on the page needs."""

    def short(tag: re.Match[str]) -> str:
        return re.sub(r"\s+", " ", re.sub(r"(?<![\d.])([1-9]\d*\.\d\d)\d+", r"\1", tag[0]))

    return re.sub(r">\s*\n\s*<", "><", re.sub(r"<[^<>]+>", short, svg))


def inline(text: str) -> Markup:
    """Markdown within a line as HTML: code, bold, emphasis, links; all else is text."""

    def element(found: re.Match[str]) -> str:
        code, bold, link, address, emphasis = found.groups()
        if link:
            link = re.sub(r"`([^`]+)`", r"<code>\1</code>", link)
            return f'<a href="{address}">{link}</a>' if FOLLOWED.fullmatch(address) else link
        tag = "code" if code else "strong" if bold else "em"
        return f"<{tag}>{code or bold or emphasis}</{tag}>"

    return Markup(INLINE.sub(element, str(escape(text))))
