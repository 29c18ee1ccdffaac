"""Base class of heads over a table that need the token counts of the training text."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..head import Head, no_counts


class CountedHead(Head):
    """A head over a table, with the token counts of the training text, which are saved in checkpoints.

    Special symbols that the training text lacks, such as ``<s>``, have probability 0: their rows are never trained.

    Args:
        table: output embedding, owned by another module.
        counts: counts of the tokens (V,); None if a checkpoint brings them.
        specials: indices of fairseq's special symbols.
        size: V, if the table has fewer rows than the vocabulary.

    Raises:
        ValueError: if the counts are not one a word, or one is below 0.
    """

    loss_is_its_own = True
    scores_every_token = False
    table: SharedEmbedding

    def __init__(
        self, table: SharedEmbedding, counts: Tensor | None, specials: Sequence[int], *, size: int | None = None
    ):
        super().__init__(table)
        self.specials = tuple(specials)
        unknown = torch.zeros(size or table.num_embeddings, dtype=torch.int64)
        if counts is not None and (counts.shape != unknown.shape or counts.lt(0).any()):
            needs = f"one for each of {len(unknown)} words, none below 0"
            raise ValueError(f"counts: needs {needs}; got {counts}. Use counts of the training text.")
        self.counts = nn.Buffer(unknown if counts is None else counts.to(unknown, copy=True))
        self.register_load_state_dict_post_hook(_prepare)

    def prepare(self) -> None:
        """Derives tensors from the counts; called again after a checkpoint is loaded."""

    def never(self) -> Tensor:
        """Mask of tokens with probability 0 (V,): special symbols that do not occur in the training text."""
        specials = torch.zeros_like(self.counts, dtype=torch.bool)
        specials[list(self.specials)] = True
        return specials & self.counts.eq(0)

    def require_counts(self) -> None:
        if not self.counts.any():
            raise no_counts(self.flag)

    def scores(self, features: Tensor) -> Tensor:
        """Logits of the whole vocabulary, -inf for tokens with probability 0: (*, D) -> (*, V)."""
        return self.table.scores(features).masked_fill(self.never(), -torch.inf)


def _prepare(head: CountedHead, _: Any) -> None:
    head.prepare()


def unigram(counts: Tensor, power: float = 1.0) -> Tensor:
    """Unigram distribution q_v = c_v^power / sum_u c_u^power (V,) in float64, where a count of 0 counts as 1.

    ``power`` 1 gives relative frequencies, 0 the uniform distribution.
    """
    powers = counts.double().clamp(min=1.0).pow(power)
    return powers / powers.sum()
