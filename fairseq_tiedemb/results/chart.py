"""Line charts as SVG that stands within a page and takes its colours from it. The same chart is the same text."""

import math
from html import escape

from fairseq_tiedemb.results.grid import Chart

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 44
# Colours of the page, --line-0 to --line-7; further labels have them again, with dots between dashes.
COLORS = 8
# Ticks that an axis has at most.
TICKS = 10
# Values further apart than this have a logarithmic axis.
WIDE = 5


class Axis:
    """From values to places between two ends.

    Args:
        low: the smallest value.
        high: the largest.
        begin: the place of the smallest.
        end: the place of the largest.
        logarithmic: whether equal ratios are equal distances.
    """

    def __init__(self, low: float, high: float, begin: float, end: float, *, logarithmic: bool = False) -> None:
        self.logarithmic = logarithmic
        if low == high:
            margin = max(1, abs(low) / 10)  # of 10^30, one less is the same number
            low, high = (low / 1.1, high * 1.1) if logarithmic else (low - margin, high + margin)
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def place(self, value: float) -> float:
        """Where a value stands."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.begin + (self.end - self.begin) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round values between the ends, at most `TICKS`.

        Multiples of 1, 2 or 5 times a power of ten; on a logarithmic axis 1, 2 and 5 times powers of ten, or every n-th
        power of ten where those are too many.
        """
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            values = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
            values = [value for value in values if self.low <= value <= self.high]
            if len(values) <= TICKS:
                return values
            apart = math.ceil(len(decades) / TICKS)
            return [10.0**each for each in decades if each % apart == 0 and 10.0**each >= self.low]
        rough = (self.high - self.low) / 8
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def svg(chart: Chart) -> str:
    """Draws a chart; its legend is the page's."""
    series = [each for each in chart.series if each.points]
    xs = [x for each in series for x in each.points]
    ys = [y for each in series for y in each.points.values()]
    if not series:
        return ""
    x_axis = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    logarithmic = min(ys) > 0 and max(ys) > WIDE * min(ys)
    y_axis = Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP, logarithmic=logarithmic)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.caption, quote=True)}">',
        '<g class="axes">',
    ]
    for value in y_axis.ticks():
        place = _number(y_axis.place(value))
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place}" y2="{place}"/>')
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{place}">{value:.6g}</text>')
    for value in x_axis.ticks():
        if value == round(value):
            parts.append(
                f'<text class="x" x="{_number(x_axis.place(value))}" y="{HEIGHT - BOTTOM + 18}">{value:g}</text>'
            )
    middle = _number((TOP + HEIGHT - BOTTOM) / 2)
    parts += [
        f'<text class="x" x="{_number((LEFT + WIDTH - RIGHT) / 2)}" y="{HEIGHT - 6}">{escape(chart.x_label)}</text>',
        f'<text class="x" transform="translate(12 {middle}) rotate(-90)">{escape(chart.y_label)}</text>',
        "</g>",
    ]
    rounds = rounds_of(chart)
    for each in series:
        points = sorted(each.points.items())
        path = "L".join(f"{_number(x_axis.place(x))} {_number(y_axis.place(y))}" for x, y in points)
        dashes = ' class="dashed"' if each.dashed else ""
        title = escape(f"{each.label}: {points[-1][1]:.6g} at {points[-1][0]}, lowest {min(each.points.values()):.6g}")
        style = stroke(*rounds[each.label], dashed=each.dashed and len(points) > 1)
        if len(points) == 1:  # has no length: a dot, the round end of a broad line; what would be dashed is a ring
            path += "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0" if each.dashed else "h0"
            style += ";stroke-dasharray:none" if each.dashed else ";stroke-width:7"
        parts.append(f'<path{dashes} style="{style}" d="M{path}"><title>{title}</title></path>')
    return "".join([*parts, "</svg>"])


def rounds_of(chart: Chart) -> dict[str, tuple[int, int]]:
    """Of each label how often the colours have been through before it, and the number of its colour."""
    labels = dict.fromkeys(each.label for each in chart.series if each.points)
    return {label: divmod(number, COLORS) for number, label in enumerate(labels)}


def stroke(turn: int, color: int, *, dashed: bool = False) -> str:
    """The CSS of a line: its colour, and the n-th time round n dots between dashes, which are long in place of solid.

    Dots are dashes of no length with round ends.
    """
    dashes = f";stroke-dasharray:{'5 4' if dashed else '14 4'}{turn * ' 0 4'}" if turn else ""
    return f"stroke:var(--line-{color}){dashes}"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
