"""The adaptive softmax: words in bands by frequency, each band after the first behind a cluster of the first.

The layers are fairseq's; ``embed_bands`` and ``tie_bands`` replace their tables by ours, in place.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._shapes import check_target
from ..embedding import SharedEmbedding, draw_norm_one_
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss, check_plain
from ..sharing import sharing_method
from .layer import OutputLayer


class Bands(nn.Module):
    """A head over fairseq's ``AdaptiveSoftmax``, which the decoder owns.

        p(v) = p_head(v)                          for words of the first band
        p(v) = p_head(cluster i) * p_i(v)         for words of band i

    Scores are log-probabilities; the loss computes the bands that the targets are in, for their words only.

    Args:
        adaptive_softmax: fairseq's.

    Source: Grave et al. 2017, section 4.
    """

    flag = "--adaptive-softmax-cutoff"
    # fairseq asks the adaptive softmax itself for the probabilities of given words.
    by_target = False
    loss_is_its_own = False

    def __init__(self, adaptive_softmax: Any):
        super().__init__()
        self._layers = (adaptive_softmax,)  # in a tuple, which torch does not search for modules

    @property
    def layers(self) -> Any:
        """fairseq's ``AdaptiveSoftmax``."""
        return self._layers[0]

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of all words: (*, D) -> (*, V)."""
        flat = features.reshape(1, -1, features.size(-1))
        return self.layers.get_log_prob(flat, None).view(*features.shape[:-1], -1)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy of the target words.

        Raises:
            ValueError: for label smoothing or z-loss, which need the scores of all words.
        """
        check_plain(options, self.flag)
        nll = -self.log_prob(features_ND, target_N)
        nll = nll.sum() if options.reduce else nll
        return OutputLoss(nll, nll.detach())

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logarithms of the probabilities of given words, (N,)."""
        layers = self.layers
        check_target(target_N, len(features_ND), layers.cutoff[-1])
        scores, targets = layers(features_ND.unsqueeze(0), target_N)
        exact = torch.promote_types(scores[0].dtype, torch.float32)
        # Not F.cross_entropy, for which -100 is no word at all.
        parts = scores[0].to(exact).log_softmax(-1).gather(1, targets[0].unsqueeze(1)).squeeze(1)
        for index, (tail_scores, tail_target) in enumerate(zip(scores[1:], targets[1:], strict=True)):
            if tail_scores is not None:
                in_band = target_N.ge(layers.cutoff[index]) & target_N.lt(layers.cutoff[index + 1])
                tail = -F.cross_entropy(tail_scores.to(exact), tail_target, reduction="none")
                parts = parts.index_add(0, in_band.nonzero().squeeze(1), tail)
        return parts

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Nothing: bands have no biases."""

    def tables(self) -> dict[str, SharedEmbedding]:
        """The tables that the input shares, by band; empty where it shares none."""
        found: dict[str, SharedEmbedding] = {}
        for index, band in enumerate([getattr(self.layers.head, "word_proj", None), *self.layers.tail]):
            last = band[-1] if isinstance(band, nn.Sequential) else band
            if isinstance(last, OutputLayer):
                found[f"band {index}"] = last.head
        return found


def embed_bands(adaptive_input: Any, method: str) -> None:
    """Makes every band's table of fairseq's ``AdaptiveInput`` a ``SharedEmbedding``, with the same parameters.

    fairseq zeroes the row with the number of the padding symbol in every band, though only the first band has padding:
    in the others it is a word. For methods that divide by norms, that row is drawn like the others.

    Source: Baevski & Auli 2019, section 3.
    """
    for index, band in enumerate(adaptive_input.embeddings):
        table, padding_idx = band[0], None if index else adaptive_input.padding_idx
        size, width = table.weight.shape
        if padding_idx is None and sharing_method(method).divides_by_norm and adaptive_input.padding_idx < size:
            draw_norm_one_(table.weight[adaptive_input.padding_idx])
        band[0] = SharedEmbedding(size, width, padding_idx, method=method, weight=table.weight)


def tie_bands(adaptive_softmax: Any, adaptive_input: Any) -> None:
    """Makes fairseq's ``AdaptiveSoftmax`` score the words of each band by the table of the input's band.

    The scores of clusters, which stand for bands and are no words, stay a linear layer. Where fairseq has not tied the
    two, nothing is changed.

    Source: Grave et al. 2017; Baevski & Auli 2019, section 3.
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
