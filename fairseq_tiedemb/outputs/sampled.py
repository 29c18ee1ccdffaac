"""Training by a few words drawn as noise instead of all words: noise-contrastive estimation."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..embedding import SharedEmbedding
from .counted import CountedHead, unigram


class NoiseContrastive(CountedHead):
    """Noise-contrastive estimation: tells each word of the text from k words of noise.

        s_v = scores(h)_v - log_z       delta_v = s_v - log(k q_v)       q_v ~ counts_v^power
        loss = softplus(-delta_target) + sum of softplus(delta_noise) over k words drawn from q

    The more noise, the closer the gradient is to that of maximum likelihood, and so the scores to log-probabilities:
    the model normalises itself. A noise word that is the target stays, as the derivation has it. In evaluation the loss
    is the exact cross entropy.

    Args:
        table: which scores words.
        counts: of the words (V,); None if they come with a checkpoint.
        marks: indices of fairseq's symbols that are no words.
        samples: k.
        power: of the counts in q.
        shared: whether all words of a batch have the same noise, which makes it one product; k should be larger then.
        log_z: logarithm of the constant that stands for every normaliser.

    Source: Gutmann & Hyvarinen 2012; Mnih & Teh 2012.
    """

    flag = "--output-layer nce"

    def __init__(
        self,
        table: SharedEmbedding,
        counts: Tensor | None,
        marks: Sequence[int],
        *,
        samples: int = 100,
        power: float = 1.0,
        shared: bool = True,
        log_z: float = 0.0,
    ):
        super().__init__(table, counts, marks)
        self.samples = samples
        self.power = power
        self.shared = shared
        self.log_z = log_z
        self.prepare()

    def prepare(self) -> None:
        """Makes q."""
        self.noise = unigram(self.counts.masked_fill(self.never(), 0), self.power)

    def surrogate(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """The equation's loss, a number a word (N,)."""
        noise_NK = self.draw(len(target_N), features_ND.device)
        mapped, log_kq = self.table.mapped(features_ND), (self.noise * self.samples).log().float()
        of_target = self.table.rows(target_N).scores_one_by_one(mapped) - log_kq[target_N]
        if self.shared:
            of_noise = self.table.rows(noise_NK).scores(mapped) - log_kq[noise_NK]
        else:
            each_NKD = mapped.unsqueeze(1).expand(*noise_NK.shape, -1)
            of_noise = self.table.rows(noise_NK).scores_one_by_one(each_NKD) - log_kq[noise_NK]
        return F.softplus(self.log_z - of_target) + F.softplus(of_noise - self.log_z).sum(1)

    def draw(self, words: int, device: torch.device) -> Tensor:
        """Noise words: (k,) for all words, or (N, k)."""
        shape = (self.samples,) if self.shared else (words, self.samples)
        drawn = torch.multinomial(self.noise, math.prod(shape), replacement=True)
        return drawn.view(shape).to(device)
