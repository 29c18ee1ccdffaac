"""The adaptive softmax over fairseq's layers, in which the first band of tokens also predicts the other bands."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .._shapes import check_pairs
from ..constants import NO_CONSTANTS, Constants
from ..embedding import SharedEmbedding, draw_norm_one_
from ..head import Head
from ..precision import exact
from ..sharing import sharing_method
from .layer import OutputLayer


class Bands(Head):
    """Output head over fairseq's ``AdaptiveSoftmax``, which the decoder owns.

        p(v) = p_head(v)                          for tokens of the first band
        p(v) = p_head(cluster i) * p_i(v)         for tokens of band i

    Scores are log-probabilities. The loss computes band i for the targets in band i only.

    Source: Grave et al. 2017, section 4.
    """

    # `by_target` is False, because fairseq calls the adaptive softmax itself for target probabilities.
    flag = "--adaptive-softmax-cutoff"
    layers: Any  # fairseq's ``AdaptiveSoftmax``

    def __init__(self, adaptive_softmax: Any):
        super().__init__()
        self.__dict__["layers"] = adaptive_softmax  # hidden from torch's registry

    def scores(self, features: Tensor) -> Tensor:
        flat = features.reshape(1, -1, features.size(-1))
        return self.layers.get_log_prob(flat, None).view(*features.shape[:-1], -1)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        layers = self.layers
        check_pairs(features_ND, target_N, layers.cutoff[-1])
        if not len(target_N):  # as of a process whose rows of the stream have ended
            return exact(features_ND).sum(1)
        scores, targets = layers(features_ND.unsqueeze(0), target_N.long())
        # Not F.cross_entropy, for which -100 is no word at all.
        parts = exact(scores[0]).log_softmax(-1).gather(1, targets[0].unsqueeze(1)).squeeze(1)
        for index, (tail_scores, tail_target) in enumerate(zip(scores[1:], targets[1:], strict=True)):
            if tail_scores is not None:
                in_band = target_N.ge(layers.cutoff[index]) & target_N.lt(layers.cutoff[index + 1])
                tail = -F.cross_entropy(exact(tail_scores), tail_target, reduction="none")
                parts = parts.index_add(0, in_band.nonzero().squeeze(1), tail)
        return parts

    def tables(self) -> dict[str, SharedEmbedding]:
        """The tables shared with the input, by band; empty without sharing."""
        bands = [getattr(self.layers.head, "word_proj", None), *self.layers.tail]
        last = [band[-1] if isinstance(band, nn.Sequential) else band for band in bands]
        return {f"band {index}": each.head for index, each in enumerate(last) if isinstance(each, OutputLayer)}


def embed_bands(adaptive_input: Any, method: str, constants: Constants = NO_CONSTANTS, *, scores: bool = True) -> None:
    """Replaces the table of every band in fairseq's ``AdaptiveInput`` by a ``SharedEmbedding`` with the same weight.

    ``scores`` says whether the tables are the output's, too. fairseq zeroes row ``padding_idx`` in every band, which in
    later ones is a token: methods that divide by norms get a random row. Source: Baevski & Auli 2019, section 3.
    """
    for index, band in enumerate(adaptive_input.embeddings):
        table, padding_idx = band[0], None if index else adaptive_input.padding_idx
        size, width = table.weight.shape
        if padding_idx is None and sharing_method(method).divides_by_norm:
            draw_norm_one_(table.weight[adaptive_input.padding_idx])
        band[0] = SharedEmbedding(
            size, width, padding_idx, method=method, weight=table.weight, scores=scores, constants=constants
        )


def tie_bands(adaptive_softmax: Any, adaptive_input: Any) -> None:
    """Makes fairseq's ``AdaptiveSoftmax`` score each band's tokens with the input's table of that band.

    The logits of clusters stay a linear layer, and bands that fairseq has not tied stay as they are. Source: Grave et
    al. 2017; Baevski & Auli 2019, section 3.
    """
    tables = [band[0] for band in adaptive_input.embeddings]
    head = adaptive_softmax.head
    if not hasattr(head, "word_proj"):
        return
    if isinstance(head.word_proj, nn.Sequential):
        head.word_proj[-1] = OutputLayer(tables[0], borrowed=True)
    else:
        head.word_proj = OutputLayer(tables[0], borrowed=True)
    for tail, table in zip(adaptive_softmax.tail, tables[1:], strict=True):
        tail[-1] = OutputLayer(table, borrowed=True)
