"""Tables and sections as they are shown, in Markdown and in HTML alike."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from pathlib import Path
from typing import NamedTuple

from fairseq_tiedemb.analysis.curves import Series

LARGE = 10**15  # from here on numbers are written as 1.268e+30; of most of their digits a float knows nothing
PAPER = "paper"  # the heading of columns with the paper's figures


class Cell(NamedTuple):
    """What stands in a table: Markdown within a line.

    `value` sorts it; None is for what stands last whatever the order, or is sorted as text.
    """

    text: str
    value: float | None = None


NOTHING = Cell("–")


class Grid(NamedTuple):
    """A table: its headings, and the cells of its rows, each with its text heading first."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Section(NamedTuple):
    """A part of a report; `name` is its anchor."""

    name: str
    title: str
    paragraphs: tuple[str, ...]  # Markdown
    grid: Grid | None  # None if nothing was run
    missing: Grid | None = None  # what was not run
    # By caption: learning curves, SVG files. By what opens them: further tables.
    charts: Mapping[str, Sequence[Series]] = {}
    pictures: Mapping[str, Path] = {}
    details: Mapping[str, Grid] = {}
    subject: str = ""  # the page that it stands on


def number(value: float, digits: int) -> str:
    """A number with these digits after the point, halves away from zero as on paper, and its thousands apart.

    An integer has none, whatever `digits` says. Numbers of 10^15 and more are in scientific form.
    """
    if abs(value) >= LARGE:
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    unit = Decimal(1).scaleb(-digits)
    exact = Context(prec=16 + digits)
    return f"{Decimal(str(value)).quantize(unit, rounding=ROUND_HALF_UP, context=exact):,}"


def without_empty_columns(headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Grid:
    """A grid without the columns in which no row says anything; the first one stays."""
    kept = [place for place in range(len(headings)) if not place or any(row[place].text.strip("–") for row in rows)]
    return Grid(tuple(headings[place] for place in kept), tuple(tuple(row[place] for place in kept) for row in rows))
