"""Row norms of trained embedding tables: statistics, histogram, and dependence on word frequency.

Source: Liu et al. 2020, section 3.2.2 and figure 2: rows of one shared table have very different norms.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairseq_tiedemb.analysis.columns import aligned, bands_of_ranks
from fairseq_tiedemb.checkpoints.dictionaries import FAIRSEQ_WORDS, is_another, side_of
from fairseq_tiedemb.checkpoints.reading import require_finite
from fairseq_tiedemb.checkpoints.table_names import PADDING_ROW, has_padding_row, is_table
from fairseq_tiedemb.checkpoints.text import read_dict
from fairseq_tiedemb.terminal import printable

PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


class Norms(NamedTuple):
    """The row norms of one table."""

    label: str  # in the output, "[1]"
    names: list[str]  # the table's entries in the checkpoint; several where equal
    rows: np.ndarray  # of the dictionary, in [0, V)
    values: np.ndarray  # their norms
    size: int  # V
    words_VD: Tensor  # the rows themselves


def table_norms(model: dict[str, Any], *, path: Path, is_fairseqs: bool = True) -> list[Norms]:
    """Returns the row norms, in float64, of the embedding tables in a checkpoint's state dict, without padding rows.

    If it is not fairseq's (`is_fairseqs`), all its entries are tables, and no row is padding. ValueError, naming the
    checkpoint, if it has no embedding table, or one with inf or nan.
    """
    named = _named_together({name: entry for name, entry in model.items() if not is_fairseqs or is_table(name)})
    tables = [(names, entry) for names, entry in named if entry.dim() == 2 and entry.numel()]
    if not tables:
        needs, got = "a model with an embedding table (embed_tokens, output_projection, ...)", f"{path}, which has none"
        raise ValueError(f"TABLE: needs {needs}; got {got}. Use a checkpoint of a model with a vocabulary.")
    require_finite({names[0]: table for names, table in tables}, str(path), flag="TABLE")
    norms = []
    for number, (names, table_VD) in enumerate(tables, start=1):
        values, rows, size = table_VD.double().norm(dim=1).numpy(), np.arange(len(table_VD)), len(table_VD)
        over = names[0].removesuffix("weight") + "over."
        listed, counts = model.get(over + "listed"), model.get(over + "counts")
        if listed is not None and counts is not None and len(listed) == size:  # of a short-list by its words' rows
            rows, size = listed.numpy(), len(counts)
        if is_fairseqs and has_padding_row(names[0]):
            is_word = rows != PADDING_ROW
            values, rows, table_VD = values[is_word], rows[is_word], table_VD[torch.from_numpy(is_word)]
        norms.append(Norms(f"[{number}]", names, rows, values, size, table_VD))
    return norms


def parameter_norms(model: dict[str, Any]) -> str:
    """Formats the Frobenius norms of a state dict's parameters, one line per parameter; equal ones share a line."""
    rows = [
        [" = ".join(names), " x ".join(map(str, entry.shape)), f"{entry.double().norm():.4g}"]
        for names, entry in _named_together(model)
    ]
    return "\n".join(aligned([["Frobenius norm of", "shape", ""], *rows]))


def summary(tables: Sequence[Norms]) -> str:
    """Formats statistics of the norms, one column per table, after the tables' names."""
    lines = [f"{one.label} {' = '.join(one.names)}" for one in tables]
    columns = [["", "rows", "min", *(f"{percent}%" for percent in PERCENTILES), "max", "mean", "std"]]
    for one in tables:
        spread = np.percentile(one.values, [0, *PERCENTILES, 100])
        numbers = [*spread, one.values.mean(), one.values.std()]
        columns.append([one.label, f"{len(one.values):,}", *(f"{number:.4g}" for number in numbers)])
    return "\n".join([*lines, *aligned(list(zip(*columns, strict=True)))])


def with_counts(
    tables: Sequence[Norms], dictionary: Path, trained_with: dict[str, Any]
) -> list[tuple[Norms, np.ndarray]]:
    """Selects the tables that belong to a dictionary, and pairs them with the word counts of their rows.

    fairseq's special symbols have count 0. `trained_with` are the dictionary fingerprints in the checkpoint, by side.
    ValueError if the file is no dict.txt, or belongs to none of the tables.
    """
    entries = [*dict.fromkeys(FAIRSEQ_WORDS, 0).items(), *read_dict(dictionary, flag="--dictionary")]
    words, counts = [word for word, _ in entries], np.array([count for _, count in entries])
    if not counts.any():
        raise ValueError(f"--dictionary: needs counts above 0; got {dictionary}, without any. Use the training's.")
    fitting = [one for one in tables if one.size == len(words)]
    if not fitting:
        sizes = ", ".join(f"{one.size:,}" for one in tables)
        needs = f"as many words as a table has rows ({sizes})"
        got = f"{len(words):,}, including fairseq's special symbols, in {dictionary}"
        raise ValueError(f"--dictionary: needs {needs}; got {got}. Use one for these rows, or leave it out.")
    # The dictionaries of two languages may have the same size.
    matching = [
        one for one in fitting if not all(is_another(words, trained_with.get(side_of(name))) for name in one.names)
    ]
    if not matching:
        needs = f"the {len(words):,} words that the model was trained with, in their order"
        got = f"{dictionary}, with other words or another order"
        raise ValueError(f"--dictionary: needs {needs}; got {got}. Use the dict.txt of the training.")
    return [(one, counts[one.rows]) for one in matching]


def by_frequency(tables: Sequence[tuple[Norms, np.ndarray]]) -> str:
    """Formats the mean norm by word frequency, one line per band of ranks, one column per table."""
    bands = bands_of_ranks(int(max((count > 0).sum() for _, count in tables)))
    columns = [["mean norm, words by frequency", *(f"{low + 1:,}-{high:,}" for low, high in bands)]]
    for one, count in tables:
        order = np.argsort(-count, kind="stable")[: (count > 0).sum()]
        means = [one.values[order[low:high]].mean() if low < len(order) else np.nan for low, high in bands]
        columns.append([one.label, *(f"{mean:.4g}" for mean in means)])
    return "\n".join(aligned(list(zip(*columns, strict=True))))


def draw(
    tables: Sequence[Norms], counted: Sequence[tuple[Norms, np.ndarray]], path: Path, *, picture_format: str
) -> None:
    """Draws the histogram of norms to a file (figure 2 of Liu et al.), and norm by count for tables in `counted`."""
    from matplotlib import colormaps  # takes a second, for which no other command should wait
    from matplotlib.figure import Figure

    colors = {one.label: colormaps["tab10"](number % 10) for number, one in enumerate(tables)}
    names = {one.label: " =\n".join(one.names) for one in tables}
    figure = Figure(figsize=(7, 4.5) if not counted else (11, 4.5), layout="constrained")
    axes, *others = figure.subplots(1, 2 if counted else 1, squeeze=False)[0]
    edges = np.linspace(0, max(one.values.max() for one in tables) or 1, 101)
    for one in tables:
        look = {"color": colors[one.label], "label": names[one.label]}
        axes.hist(one.values, edges, histtype="stepfilled", alpha=0.5, **look)
    axes.set(xlabel="norm of a row", ylabel="words")
    axes.legend(fontsize="small")
    for scatter in others:
        for one, count in counted:
            seen, look = count > 0, {"color": colors[one.label], "label": names[one.label]}
            scatter.scatter(count[seen], one.values[seen], s=3, alpha=0.3, rasterized=True, **look)
        scatter.set(xscale="log", xlabel="frequency of the word in training", ylabel="norm of its row")
        scatter.legend(fontsize="small")
    figure.savefig(path, format=picture_format, dpi=150)


def _named_together(entries: dict[str, Any]) -> list[tuple[list[str], Tensor]]:
    """Groups equal floating-point tensors, and returns every group's printable names and tensor."""
    groups: list[tuple[list[str], Tensor]] = []
    for name, entry in entries.items():
        if not isinstance(entry, Tensor) or not entry.is_floating_point():
            continue
        names: list[str] = next((names for names, other in groups if torch.equal(entry, other)), [])
        if not names:
            groups.append((names, entry))
        names.append(printable(name).replace("\n", "\\n"))
    return groups
