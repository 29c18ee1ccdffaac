"""Draws which embedding tables of a translation model are shared: untied, weight tying, three-way weight tying.

    python recipes/draw_sharing.py recipes/figures/sharing.svg

`make report` runs it. The sizes are those of results/table8-sizes (Press & Wolf 2016, table 8, English-French).
"""

import argparse
import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "table8-sizes"
ROLES = ("source words in", "target words in", "target words out")
# Preset, title, and the number of each role's table.
PANELS = (
    ("dl4mt", "untied", (0, 1, 2)),
    ("dl4mt_wt", "weight tying (WT)", (0, 1, 1)),
    ("dl4mt_twwt", "three-way weight tying (TWWT)", (0, 0, 0)),
)
COLORS = ("#2a78b5", "#d9822b", "#3f9b57")
PANEL, HEIGHT, ROW, TOP = 270, 178, 36, 44

STYLE = """\
text { font: 13px sans-serif; fill: #1f2328 }
.title { font-weight: bold }
.size { fill: #59636e }
.line { stroke: #59636e; fill: none }
@media (prefers-color-scheme: dark) { text { fill: #f0f6fc } .size { fill: #9198a1 } .line { stroke: #9198a1 } }
"""


def million_parameters(preset: str) -> float:
    """Reads the number of parameters of a preset, in millions."""
    result = json.loads((RESULTS / f"en-fr,{preset}.json").read_text(encoding="utf-8"))
    return float(result["figures"]["size"]["value"])


def panel(left: int, preset: str, title: str, tables: tuple[int, ...]) -> list[str]:
    """Draws one model: roles on the left, tables on the right, and a line from every role to its table."""
    lines = [f'<text class="title" x="{left}" y="20">{title}</text>']
    for table in sorted(set(tables)):
        rows = [row for row, each in enumerate(tables) if each == table]
        top, bottom = TOP + min(rows) * ROW, TOP + max(rows) * ROW + 26
        lines.append(
            f'<rect x="{left + 160}" y="{top}" width="70" height="{bottom - top}" rx="4" fill="{COLORS[table]}"/>'
        )
    for row, role in enumerate(ROLES):
        middle = TOP + row * ROW + 13
        lines.append(f'<text x="{left}" y="{middle + 4}">{role}</text>')
        lines.append(f'<path class="line" d="M{left + 112} {middle}h42"/>')
    lines.append(
        f'<text class="size" x="{left}" y="{HEIGHT - 14}">{preset}: {million_parameters(preset):.1f}M parameters</text>'
    )
    return lines


def picture() -> str:
    """Returns the whole SVG."""
    width = PANEL * len(PANELS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" role="img">',
        "<title>The embedding tables of a translation model, untied, tied two ways and tied three ways</title>",
        f"<style>\n{STYLE}</style>",
    ]
    for number, (preset, title, tables) in enumerate(PANELS):
        lines += panel(number * PANEL + 10, preset, title, tables)
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Draw which tables of a translation model are one.")
    parser.add_argument("output", type=Path, metavar="SVG")
    parser.parse_args().output.write_text(picture(), encoding="utf-8")
