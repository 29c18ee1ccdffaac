"""How often training updates each row of an input table, which gets a gradient only where its word is read.

Source: Press & Wolf 2016, section 3: "vectors representing rare words are updated only a small number of times. The
output embedding updates every row at each timestep."
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairseq_tiedemb.analysis.columns import aligned, bands_of_ranks

FEW = 10


@dataclass(frozen=True)
class InputUpdates:
    """Updates of the rows of an input table in one epoch.

    Attributes:
        updates_V: batches that read each word.
        counts_V: tokens that read each word.
        rows_of_batches: different words of each batch.
    """

    updates_V: np.ndarray
    counts_V: np.ndarray
    rows_of_batches: np.ndarray

    def describe(self) -> list[str]:
        """Lines for people."""
        size, batches = len(self.updates_V), len(self.rows_of_batches)
        rows, few = self.rows_of_batches, self.updates_V <= FEW
        per_batch = f"{rows.mean():.0f} different rows of {size:,} ({rows.mean() / size:.1%})"
        columns = [["words by frequency"], ["updates an epoch"], ["share of batches"]]
        order = np.argsort(-self.counts_V, kind="stable")
        for low, high in bands_of_ranks(size):
            mean = self.updates_V[order[low:high]].mean()
            for column, cell in zip(
                columns, (f"{low + 1:,}-{high:,}", f"{mean:,.1f}", f"{mean / batches:.2%}"), strict=True
            ):
                column.append(cell)
        return [
            f"an epoch: {self.counts_V.sum():,} tokens in {batches:,} batches",
            f"input: a batch updates {per_batch}, {rows.min():,} to {rows.max():,}",
            f"input: an epoch updates {(self.updates_V > 0).sum():,} rows; {few.mean():.1%} of all are updated {FEW} "
            f"times or less, {(self.counts_V <= FEW).mean():.1%} are of words that come {FEW} times or less",
            f"output, by full softmax: each batch updates all {size:,} rows, {batches:,} times an epoch",
            *aligned(columns),
        ]


def input_updates(batches: Iterable[np.ndarray], size: int, *, not_words: tuple[int, ...] = ()) -> InputUpdates:
    """Counts the updates of one epoch.

    Args:
        batches: the words that each batch reads, in any shape.
        size: V.
        not_words: rows that stand for no word, padding among them, and are left out.

    Raises:
        ValueError: if there is no batch.
    """
    updates, counts, rows = np.zeros(size, np.int64), np.zeros(size, np.int64), []
    kept = np.delete(np.arange(size), not_words)
    for batch in batches:
        found = np.bincount(np.asarray(batch).ravel(), minlength=size)
        updates += found > 0
        counts += found
        rows.append(np.count_nonzero(found[kept]))
    if not rows:
        raise ValueError("--train-subset: needs a text with a batch at least; got none. Use another.")
    return InputUpdates(updates[kept], counts[kept], np.array(rows))
