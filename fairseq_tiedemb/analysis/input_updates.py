"""Counts the updates of an input embedding's rows: a row gets a gradient only from batches that contain its word.

Source: Press & Wolf 2016, section 3: "vectors representing rare words are updated only a small number of times. The
output embedding updates every row at each timestep."
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fairseq_tiedemb.analysis.columns import aligned, bands_of_ranks

FEW = 10


class InputUpdates(NamedTuple):
    """How often one epoch updates the rows of an input embedding."""

    updates_V: np.ndarray  # batches that contain the word
    counts_V: np.ndarray  # tokens of the word
    rows_of_batches: np.ndarray  # different words in each batch

    def describe(self) -> list[str]:
        """Formats the counts as lines of text, by bands of word frequency."""
        size, batches = len(self.updates_V), len(self.rows_of_batches)
        rows, few = self.rows_of_batches, self.updates_V <= FEW
        per_batch = f"{rows.mean():.0f} different rows of {size:,} ({rows.mean() / size:.1%})"
        table = [["words by frequency", "updates an epoch", "share of batches"]]
        order = np.argsort(-self.counts_V, kind="stable")
        for low, high in bands_of_ranks(size):
            mean = self.updates_V[order[low:high]].mean()
            table.append([f"{low + 1:,}-{high:,}", f"{mean:,.1f}", f"{mean / batches:.2%}"])
        return [
            f"an epoch: {self.counts_V.sum():,} tokens in {batches:,} batches",
            f"input: a batch updates {per_batch}, {rows.min():,} to {rows.max():,}",
            f"input: an epoch updates {(self.updates_V > 0).sum():,} rows; {few.mean():.1%} of all are updated {FEW} "
            f"times or less, {(self.counts_V <= FEW).mean():.1%} are of words that come {FEW} times or less",
            f"output, by full softmax: each batch updates all {size:,} rows, {batches:,} times an epoch",
            *aligned(table),
        ]


def input_updates(batches: Iterable[np.ndarray], size: int, *, not_words: tuple[int, ...] = ()) -> InputUpdates:
    """Counts the updates of one epoch, of the input tokens of one batch or more, in any shape.

    `size` is V; `not_words` are rows to leave out, such as padding.
    """
    updates, counts, rows = np.zeros(size, np.int64), np.zeros(size, np.int64), []
    kept = np.delete(np.arange(size), not_words)
    for batch in batches:
        batch_counts = np.bincount(np.asarray(batch).ravel(), minlength=size)
        updates += batch_counts > 0
        counts += batch_counts
        rows.append(np.count_nonzero(batch_counts[kept]))
    return InputUpdates(updates[kept], counts[kept], np.array(rows))
