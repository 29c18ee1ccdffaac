"""Variational dropout: one mask for all time steps of a row, and word dropout that drops all occurrences of a token.

Masks are drawn from torch's global generator, once per forward pass.
"""

from torch import Tensor, nn


def variational_mask(p: float, *shape: int, like: Tensor) -> Tensor:
    """Dropout mask of the given shape, with dtype and device of ``like``: 0 with probability p, else 1 / (1 - p)."""
    return like.new_empty(shape).bernoulli_(1 - p).div_(1 - p)


def word_mask(tokens_BT: Tensor, p: float, *, like: Tensor) -> Tensor:
    """Mask (B, T, 1) that drops token types: equal tokens of a row are dropped together; rows are independent.

    ``p`` and ``like`` are those of ``variational_mask``.
    """
    bsz, length = tokens_BT.shape
    first_BT = (tokens_BT.unsqueeze(2) == tokens_BT.unsqueeze(1)).byte().argmax(2)  # argmax: the first of equals
    return variational_mask(p, bsz, length, like=like).gather(1, first_BT).unsqueeze(2)


class VariationalDropout(nn.Module):
    """Dropout with one mask (B, D) for all time steps of a sequence; the identity in evaluation.

    ``p`` is the probability of zero, in [0, 1). Source: Gal & Ghahramani 2016, section 4.1.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, features_TBD: Tensor) -> Tensor:
        """Applies the mask; features may have any width."""
        if not self.training or self.p == 0:
            return features_TBD
        return features_TBD * variational_mask(self.p, *features_TBD.shape[1:], like=features_TBD)


class WordDropout(nn.Module):
    """Dropout of whole embedding rows, drawn for each row of the batch; the identity in evaluation.

    ``p`` is the probability of zero, in [0, 1).

    Source: Gal & Ghahramani 2016, section 4.2. Their first program compared tokens wrongly and dropped each occurrence
    independently; here equal tokens share one draw, as in yaringal/BayesianRNN LM_code/main_new_dropout_SOTA_v3.lua.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, embedded_BTD: Tensor, tokens_BT: Tensor) -> Tensor:
        """Masks the vectors ``embedded_BTD`` of ``tokens_BT``."""
        if not self.training or self.p == 0:
            return embedded_BTD
        return embedded_BTD * word_mask(tokens_BT, self.p, like=embedded_BTD)
