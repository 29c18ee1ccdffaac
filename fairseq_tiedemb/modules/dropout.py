"""Variational dropout: one mask for all time steps of a row, and one fate for all occurrences of a word.

Masks are drawn from torch's global generator, once a forward pass over the unrolled steps.
"""

from torch import Tensor, nn


def variational_mask(p: float, *shape: int, like: Tensor) -> Tensor:
    """Zero with probability p, else 1 / (1 - p), element by element.

    Args:
        p: probability of zero, in [0, 1).
        shape: sizes of the mask.
        like: has the mask's dtype and device.
    """
    return like.new_empty(shape).bernoulli_(1 - p).div_(1 - p)


def word_mask(tokens_BT: Tensor, p: float, *, like: Tensor) -> Tensor:
    """A mask (B, T, 1) that drops word types: equal words of a row are dropped together, rows are independent.

    Args:
        tokens_BT: words.
        p: probability of zero, in [0, 1).
        like: has the mask's dtype and device.
    """
    bsz, length = tokens_BT.shape
    first_BT = (tokens_BT.unsqueeze(2) == tokens_BT.unsqueeze(1)).byte().argmax(2)  # argmax: the first of equals
    return variational_mask(p, bsz, length, like=like).gather(1, first_BT).unsqueeze(2)


class VariationalDropout(nn.Module):
    """Dropout with one mask (B, D) for all steps of a sequence; the identity in evaluation.

    Args:
        p: probability of zero, in [0, 1).

    Source: Gal & Ghahramani 2016, section 4.1.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, features_TBD: Tensor) -> Tensor:
        """Masks features of any width, step by step."""
        if not self.training or self.p == 0:
            return features_TBD
        return features_TBD * variational_mask(self.p, *features_TBD.shape[1:], like=features_TBD)


class WordDropout(nn.Module):
    """Dropout of whole rows of an embedding table, drawn anew for each row of the batch; the identity in evaluation.

    Args:
        p: probability of zero, in [0, 1).

    Source: Gal & Ghahramani 2016, section 4.2. Their first program compared tokens wrongly and dropped each occurrence
    on its own; here equal words share one draw, as in yaringal/BayesianRNN LM_code/main_new_dropout_SOTA_v3.lua.
    """

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, embedded_BTD: Tensor, tokens_BT: Tensor) -> Tensor:
        """Masks the vectors of words.

        Args:
            embedded_BTD: vectors.
            tokens_BT: whose vectors they are.
        """
        if not self.training or self.p == 0:
            return embedded_BTD
        return embedded_BTD * word_mask(tokens_BT, self.p, like=embedded_BTD)
