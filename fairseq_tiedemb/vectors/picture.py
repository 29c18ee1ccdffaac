"""A map of words: points with labels, a panel a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Where a label may stand from its point, in points, and how it is then aligned.
CORNERS = ((3, 2, "left", "bottom"), (-3, 2, "right", "bottom"), (3, -2, "left", "top"), (-3, -2, "right", "top"))
SIDE = 8.0  # inches of a panel
GAP = 2.0  # pixels that a label keeps clear around it


def draw(
    panels: Sequence[tuple[str, Sequence[str], np.ndarray]],
    path: Path,
    *,
    picture_format: str,
    true_distances: bool = False,
) -> list[int]:
    """Draws points with their words; a label that would cover another one, or leave the panel, is left out.

    The first words have theirs before the others.

    Args:
        panels: title, words and places (N, 2) of each.
        path: the file to write.
        picture_format: png, svg or another that matplotlib writes.
        true_distances: one scale for both directions of a panel.

    Returns:
        How many labels each panel has.
    """
    # matplotlib takes a second to import, which no other command should wait for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIDE * len(panels), SIDE), layout="constrained")
    canvas = FigureCanvasAgg(figure)  # which measures labels, whatever the format
    drawn = []
    for axes, (title, _, places) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axes.scatter(*places.T, s=6, linewidths=0, color="tab:blue")
        axes.set_title(title, fontsize="medium", parse_math=False, wrap=True)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.06)
        if true_distances:
            axes.set_aspect("equal", adjustable="datalim")
        drawn.append(axes)
    canvas.draw()  # settles where the panels are
    figure.set_layout_engine("none")
    counts = [
        _label(axes, panel[1], panel[2], canvas.get_renderer()) for axes, panel in zip(drawn, panels, strict=True)
    ]
    figure.savefig(path, format=picture_format, dpi=150)
    return counts


def _label(axes: Any, words: Sequence[str], places: np.ndarray, renderer: Any) -> int:
    """Writes the words that fit, each where it covers the fewest points; returns how many."""
    taken, panel = np.empty((0, 4)), axes.get_window_extent(renderer)
    points = axes.transData.transform(places)
    for word, place in zip(words, places, strict=True):
        best, fewest = None, len(points) + 1
        for x, y, horizontal, vertical in CORNERS:
            text = axes.annotate(
                word,
                place,
                xytext=(x, y),
                textcoords="offset points",
                ha=horizontal,
                va=vertical,
                fontsize=7,
                parse_math=False,
            )
            left, bottom, right, top = text.get_window_extent(renderer).padded(GAP).extents
            apart = (taken[:, 0] > right) | (taken[:, 2] < left) | (taken[:, 1] > top) | (taken[:, 3] < bottom)
            inside = ((points > (left, bottom)) & (points < (right, top))).all(1).sum()
            fits = left > panel.x0 and right < panel.x1 and bottom > panel.y0 and top < panel.y1
            if not (apart.all() and fits and inside < fewest):
                text.remove()
                continue
            if best is not None:
                best[0].remove()
            best, fewest = (text, [left, bottom, right, top]), inside
        if best is not None:
            taken = np.vstack([taken, best[1]])
    return len(taken)
