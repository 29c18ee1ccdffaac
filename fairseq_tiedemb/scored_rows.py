"""The scores of a few words, by their rows of a table alone."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class ScoredRows(NamedTuple):
    """What the scores of K words are made of: scale_k (w_k . f(h)) + offset_k.

    Attributes:
        rows: w (K, D).
        scale: (K,), or None for 1.
        offset: with the output bias, (K,), or None for 0.
    """

    rows: Tensor
    scale: Tensor | None
    offset: Tensor | None

    def scores(self, mapped_ND: Tensor) -> Tensor:
        """Scores (N, K) of every word for every feature f(h) (N, D), in float32 at least.

        Args:
            mapped_ND: ``SharedEmbedding.mapped`` features.
        """
        return self._affine(F.linear(mapped_ND, self.rows))

    def scores_one_by_one(self, mapped_KD: Tensor) -> Tensor:
        """Score (K,) of each word for a feature of its own, in float32 at least."""
        exact = torch.promote_types(self.rows.dtype, torch.float32)
        return self._affine((mapped_KD.to(exact) * self.rows).sum(-1))

    def scores_in_turn(self, mapped_GBD: Tensor) -> Tensor:
        """Scores (G, M, B), M = K / G: of the first M words for the first B features, then of the next, and so on."""
        words_GMD = self.rows.view(len(mapped_GBD), -1, self.rows.size(-1))
        scores = torch.bmm(words_GMD, mapped_GBD.transpose(1, 2))
        each_K1 = ScoredRows(
            self.rows, *(None if each is None else each.unsqueeze(1) for each in (self.scale, self.offset))
        )
        return each_K1._affine(scores.flatten(0, 1)).view(scores.shape)

    def part(self, words: slice) -> "ScoredRows":
        """What the scores of some of the words are made of."""
        return ScoredRows(*(None if each is None else each[words] for each in self))  # type: ignore[arg-type]

    def take(self, places_M: Tensor) -> "ScoredRows":
        """What the scores of the words at some places (M,) are made of, any of them several times."""
        # The gradient of advanced indexing takes twice as long.
        return ScoredRows(*(None if each is None else each.index_select(0, places_M) for each in self))  # type: ignore[arg-type]

    def _affine(self, products: Tensor) -> Tensor:
        scores = products.to(torch.promote_types(products.dtype, torch.float32))
        scores = scores if self.scale is None else scores * self.scale
        return scores if self.offset is None else scores + self.offset


def gather_rows(table: Tensor, words: Tensor, *, sparse: bool = False) -> Tensor:
    """Rows of a table (V, D) for words (K,), in float32 at least: (K, D).

    In half precision the whole table is cast for that, once, if it is to get a gradient: then the gradients of a word
    that is there several times are summed in float32. A sum in bfloat16 stands still after 256 terms of one size.
    """
    exact = torch.promote_types(table.dtype, torch.float32)
    if table.requires_grad and torch.is_grad_enabled():
        return F.embedding(words, table.to(exact), sparse=sparse)
    return F.embedding(words, table).to(exact)
