"""Line charts as SVG that stands within a page and takes its colours from it. The same chart is the same text."""

import math
from html import escape

from fairseq_tiedemb.results.grid import Chart

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 44
# Colours of the page, --line-0 to --line-7; more labels begin again.
COLORS = 8
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
            low, high = (low / 1.1, high * 1.1) if logarithmic else (low - 1, high + 1)
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def place(self, value: float) -> float:
        """Where a value stands."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.begin + (self.end - self.begin) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Round values between the ends: 1, 2 and 5 times powers of ten, or multiples of such a number, 4 to 10."""
        if self.logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            values = [step * 10.0**decade for decade in decades for step in (1, 2, 5)]
            return [value for value in values if self.low <= value <= self.high]
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
    colors = colors_of(chart)
    for each in series:
        points = sorted(each.points.items())
        path = "L".join(f"{_number(x_axis.place(x))} {_number(y_axis.place(y))}" for x, y in points)
        dashes = ' class="dashed"' if each.dashed else ""
        title = escape(f"{each.label}: {points[-1][1]:.6g} at {points[-1][0]}, lowest {min(each.points.values()):.6g}")
        style = f"stroke:var(--line-{colors[each.label]})"
        if len(points) == 1:  # has no length: a dot, which is the round end of a broad line
            path += "h0"
            style += ";stroke-width:7"
        parts.append(f'<path{dashes} style="{style}" d="M{path}"><title>{title}</title></path>')
    return "".join([*parts, "</svg>"])


def colors_of(chart: Chart) -> dict[str, int]:
    """The number of each label's colour."""
    labels = dict.fromkeys(each.label for each in chart.series if each.points)
    return {label: number % COLORS for number, label in enumerate(labels)}


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
