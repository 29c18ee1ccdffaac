"""What the heads over a table that know the counts of words have in common."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..embedding import SharedEmbedding
from ..head import Head, no_counts


class CountedHead(Head):
    """A head over a table, with the counts of words in the training text, which stay in the checkpoint.

    Marks that the training text lacks (``<s>``, ``<pad>``), whose rows are never trained, have no probability.

    Args:
        table: scores the words; another module owns it.
        counts: of the words (V,); None if they come with a checkpoint.
        marks: indices of fairseq's symbols that are no words.
        size: V, where the table has fewer rows than words.
    """

    loss_is_its_own = True
    counts: Tensor

    def __init__(self, table: SharedEmbedding, counts: Tensor | None, marks: Sequence[int], *, size: int | None = None):
        super().__init__()
        self._table = (table,)  # in a tuple, which torch does not search for modules
        self.marks = tuple(marks)
        unknown = torch.zeros(size or table.num_embeddings, dtype=torch.int64)
        self.register_buffer("counts", unknown if counts is None else counts.to(unknown, copy=True))
        self.register_load_state_dict_post_hook(_prepare)

    @property
    def table(self) -> SharedEmbedding:
        """Which scores words."""
        return self._table[0]

    def prepare(self) -> None:
        """Makes what follows from the counts; called again when a checkpoint has been read."""

    def never(self) -> Tensor:
        """Where words have no probability (V,): marks that do not occur in the training text."""
        marks = torch.zeros_like(self.counts, dtype=torch.bool)
        marks[list(self.marks)] = True
        return marks & self.counts.eq(0)

    def require_counts(self) -> None:
        """Checks that the head has the counts of a training text.

        Raises:
            ValueError: if it has none.
        """
        if not self.counts.any():
            raise no_counts(self.flag)

    def scores(self, features: Tensor) -> Tensor:
        """Logarithms of the probabilities of all words, up to a constant a row: (*, D) -> (*, V)."""
        return self.table.scores(features).masked_fill(self.never(), -torch.inf)

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the biases so that, without features, words have these probabilities; None for biases of 0."""
        self.table.start_bias(log_prob_V)

    def tables(self) -> dict[str, SharedEmbedding]:
        """The tables that words are scored by, by the name of their words."""
        return {"words": self.table}


def _prepare(head: CountedHead, _: Any) -> None:
    head.prepare()


def unigram(counts: Tensor, power: float = 1.0) -> Tensor:
    """q_v = c_v^power / sum_u c_u^power (V,), float64, where a word that does not occur counts as one that occurs once.

    Args:
        counts: c (V,).
        power: 1 for the words' own distribution, 0 for the same probability of all.
    """
    powers = counts.double().clamp(min=1.0).pow(power)
    return powers / powers.sum()
