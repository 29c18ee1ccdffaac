"""Logits of a few tokens, from their rows of a table alone."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .constants import NO_CONSTANTS, Constants
from .precision import exact, exact_dtype


class ScoredRows(NamedTuple):
    """Rows, scale and offset of K tokens, whose logits are scale_k (w_k . f(h)) + offset_k, or this with a soft cap."""

    rows: Tensor  # w (K, D)
    scale: Tensor | None  # (K,), or None for 1
    offset: Tensor | None  # (K,) with the output bias included, or None for 0
    constants: Constants = NO_CONSTANTS  # of the table

    @property
    def matrix(self) -> Tensor:
        """Rows times scales (K, D), whose products with mapped features are the logits without offset and cap."""
        return self.rows if self.scale is None else (self.rows * self.scale.unsqueeze(1)).to(self.rows.dtype)

    def scores(self, mapped_ND: Tensor, linear: Callable[[Tensor, Tensor], Tensor] | None = None) -> Tensor:
        """Logits (N, K) of every token for every mapped feature f(h), in float32 or more precise."""
        return self._affine((linear or F.linear)(mapped_ND, self.rows))

    def scores_one_by_one(self, mapped_KD: Tensor) -> Tensor:
        """Logit (K,) of token k for feature vector k, in float32 or more precise."""
        return self._affine((mapped_KD.to(exact_dtype(self.rows)) * self.rows).sum(-1))

    def scores_in_turn(self, mapped_GBD: Tensor) -> Tensor:
        """Logits (G, M, B) of G consecutive groups of M = K / G tokens, where each group has B features of its own."""
        groups = len(mapped_GBD)  # which may be 0
        words_GMD = self.rows.view(groups, len(self.rows) // max(groups, 1), self.rows.size(-1))
        scores = torch.bmm(words_GMD, mapped_GBD.transpose(1, 2))
        columns_K1 = self.each(lambda term: term if term is self.rows else term.unsqueeze(1))
        return columns_K1._affine(scores.flatten(0, 1)).view(scores.shape)

    def take(self, places_M: Tensor) -> "ScoredRows":
        """The rows, scales and offsets at the given positions (M,), which may repeat."""
        # `index_select`, because the gradient of advanced indexing takes twice as long.
        return self.each(lambda term: term.index_select(0, places_M))

    def each(self, change: Callable[[Tensor], Tensor]) -> "ScoredRows":
        """Other rows, scales and offsets: what ``change`` makes of each."""
        scale, offset = (None if term is None else change(term) for term in (self.scale, self.offset))
        return ScoredRows(change(self.rows), scale, offset, self.constants)

    def _affine(self, products: Tensor) -> Tensor:
        scores = exact(products)
        scores = scores if self.scale is None else scores * self.scale
        return self.constants.capped(scores if self.offset is None else scores + self.offset)


def gather_rows(table: Tensor, words: Tensor, *, sparse: bool = False) -> Tensor:
    """Rows (K, D) of a table (V, D) for tokens (K,), in float32 or more precise.

    If a half-precision table needs a gradient, the whole table is cast, so that the gradients of a repeated token are
    summed in float32: a sum in bfloat16 stops growing after 256 terms of equal size.
    """
    if table.requires_grad and torch.is_grad_enabled():
        return F.embedding(words, exact(table), sparse=sparse)
    return exact(F.embedding(words, table))
