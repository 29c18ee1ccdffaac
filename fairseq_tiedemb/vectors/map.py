"""Maps of words: lays vectors out in a plane, by principal components or t-SNE, and draws labelled points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_tiedemb.terminal import printable

PERPLEXITY = 30.0  # of t-SNE, if there are enough words
START_SPREAD = 1e-4  # standard deviation of t-SNE's initial places, scikit-learn's value
# Offsets of a label from its point, in typographic points, with the alignment of the label's text.
CORNERS = ((3, 2, "left", "bottom"), (-3, 2, "right", "bottom"), (3, -2, "left", "top"), (-3, -2, "right", "top"))
SIDE = 8.0  # of a panel, in inches
GAP = 2.0  # around a label, in pixels


def principal_components(rows_ND: np.ndarray) -> tuple[np.ndarray, float]:
    """Projects rows on their two principal components: the first two columns of U S, where X - mean = U S V'.

    Returns places (N, 2), float64, with a positive largest entry in both columns; the share of the variance they keep.
    """
    centred = rows_ND.astype(np.float64) - rows_ND.mean(0, dtype=np.float64)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(centred), 2))
    places[:, : min(2, len(values))] = (left * values)[:, :2]
    signs = np.sign(places[np.abs(places).argmax(0), [0, 1]])
    total = float((values**2).sum())
    return places * np.where(signs == 0, 1, signs), float((values[:2] ** 2).sum()) / total if total else 1.0


def neighbour_embedding(rows_ND: np.ndarray) -> np.ndarray:
    """Projects N > 3 rows to places (N, 2) by t-SNE with cosine distance; deterministic, from the principal components.

    ValueError without scikit-learn, or if all rows are equal.

    Source: van der Maaten & Hinton 2008; scikit-learn's implementation.
    """
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError:
        use = "pip install scikit-learn, or --method pca"
        raise ValueError(f"--method: needs scikit-learn for tsne; got a Python without it. Use {use}.") from None

    perplexity = min(PERPLEXITY, (len(rows_ND) - 1) / 3)
    start = principal_components(rows_ND)[0]
    spread = start[:, 0].std()
    if not spread > 0:
        use = "other words, or a table that training has changed"
        raise ValueError(f"--method: needs different vectors for tsne; got {len(rows_ND)} equal ones. Use {use}.")
    # The spread of scikit-learn's own start, which fails for rows with one entry.
    start = (start / spread * START_SPREAD).astype(np.float32)
    return TSNE(metric="cosine", init=start, perplexity=perplexity, random_state=1).fit_transform(rows_ND)


def draw(
    panels: Sequence[tuple[str, Sequence[str], np.ndarray]], path: Path, *, picture_format: str, true_distances: bool
) -> list[int]:
    """Draws words at their places; a label that would cover another label or leave the panel is left out.

    A panel is its title, words and their places (N, 2); earlier words get their labels first. `true_distances` is one
    scale for both axes of a panel. Returns the number of labels in each panel.
    """
    # matplotlib takes a second to import, which no other command should wait for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIDE * len(panels), SIDE), layout="constrained")
    canvas = FigureCanvasAgg(figure)  # which measures labels, whatever the format
    drawn = list(zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True))
    for axes, (title, _, places) in drawn:
        axes.scatter(*places.T, s=6, linewidths=0, color="tab:blue")
        axes.set_title(printable(title), fontsize="medium", parse_math=False, wrap=True)
        axes.set(xticks=[], yticks=[])
        axes.margins(0.06)
        if true_distances:
            axes.set_aspect("equal", adjustable="datalim")
    canvas.draw()  # settles where the panels are
    figure.set_layout_engine("none")
    counts = [_label(axes, words, places, canvas.get_renderer()) for axes, (_, words, places) in drawn]
    figure.savefig(path, format=picture_format, dpi=150)
    return counts


def _label(axes: Any, words: Sequence[str], places: np.ndarray, renderer: Any) -> int:
    """Writes the labels that fit, in the corner that covers the fewest points; returns their number."""
    taken, panel = np.empty((0, 4)), axes.get_window_extent(renderer)
    points = axes.transData.transform(places)
    for word, place in zip(words, places, strict=True):
        best, fewest = None, len(points) + 1
        for x, y, horizontal, vertical in CORNERS:
            font = {"ha": horizontal, "va": vertical, "fontsize": 7, "parse_math": False}
            text = axes.annotate(printable(word), place, xytext=(x, y), textcoords="offset points", **font)
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
