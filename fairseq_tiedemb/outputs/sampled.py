"""Training losses on a few sampled tokens: noise-contrastive estimation and the sampled softmax."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._shapes import check_pairs
from ..embedding import SharedEmbedding
from ..kept import Kept
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from .counted import CountedHead
from .noise import Noise


class SampledHead(CountedHead):
    """Base of heads that train on the target and k noise tokens, and evaluate with the full softmax.

    Noise comes from torch's generator of the features' device, which fairseq seeds before each update. Targets and
    noise of a batch are gathered in one lookup, so the table gets one gradient.

    Args:
        table, counts, specials: see ``CountedHead``.
        samples: k.
        power: exponent of the counts in the noise distribution q.
        shared: whether all tokens of a batch share their noise, which needs one matrix product and a larger k. Separate
            noise takes N k rows of memory.
    """

    has_raw_scores = True

    def __init__(
        self,
        table: SharedEmbedding,
        counts: Tensor | None,
        specials: Sequence[int],
        *,
        samples: int = 100,
        power: float = 1.0,
        shared: bool = True,
    ):
        super().__init__(table, counts, specials)
        self.samples, self.power, self.shared = samples, power, shared
        self._noise = Kept()

    @property
    def noise(self) -> Noise:
        """The distribution q that noise words are drawn from."""
        return self._noise.of(lambda: Noise(self.counts, self.power, self.never()), [self.counts])

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Surrogate loss in training mode, exact cross entropy in evaluation mode.

        Raises ValueError for a loss option, and for training without counts.
        """
        self.check_options(options)
        if not self.training:
            return self.table.loss(features_ND, target_N, options, self.never())
        self.require_counts()
        losses = self.surrogate(features_ND, target_N)
        return OutputLoss(losses.sum() if options.reduce else losses, None)

    def surrogate(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """The training loss of each target token (N,)."""
        count = len(features_ND)
        check_pairs(features_ND, target_N, len(self.counts))
        noise = self.noise.draw((self.samples,) if self.shared else (count, self.samples))
        mapped_ND = self.table.mapped(features_ND)
        rows = self.table.rows(torch.cat((target_N, noise.flatten())))
        noise_rows = rows.each(lambda term: term[count:])
        target_scores_N = rows.each(lambda term: term[:count]).scores_one_by_one(mapped_ND)
        if self.shared:
            noise_scores_NK = noise_rows.scores(mapped_ND)
        else:
            noise_scores_NK = noise_rows.scores_in_turn(mapped_ND.unsqueeze(1)).view(noise.shape)
        return self.losses(target_scores_N, noise_scores_NK, target_N, noise)

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        """Losses (N,), given the logits of targets and noise; ``noise`` holds tokens, (K,) or (N, K)."""
        raise NotImplementedError

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        return -self.table.loss(features_ND, target_N, LossOptions(reduce=False), self.never()).loss

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        return self.table.raw_scores(features_ND, target_N)

    def log_expected(self, words: Tensor, scores: Tensor) -> Tensor:
        """log(k q) of the given tokens, in the dtype of ``scores``."""
        return (self.noise.q[words] * self.samples).log().to(scores.dtype)


class NoiseContrastive(SampledHead):
    """Noise-contrastive estimation: binary classification of the target against k noise tokens.

        s_v = scores(h)_v - log_z       delta_v = s_v - log(k q_v)
        loss = softplus(-delta_target) + sum of softplus(delta_noise) over k tokens drawn from q

    With more noise the gradient approaches that of maximum likelihood, and the logits approach log-probabilities: the
    model normalises itself. Noise that equals the target is kept, as in the derivation. ``log_z`` is the log of the
    constant that replaces every normaliser; ``SampledHead`` describes the other arguments.

    Source: Gutmann & Hyvarinen 2012; Mnih & Teh 2012.
    """

    flag = "--output-layer nce"

    def __init__(self, *arguments: Any, log_z: float = 0.0, **options: Any):
        super().__init__(*arguments, **options)
        self.log_z = log_z

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        target_delta = target_scores_N - self.log_z - self.log_expected(target_N, target_scores_N)
        noise_delta = noise_scores_NK - self.log_z - self.log_expected(noise, noise_scores_NK)
        return F.softplus(-target_delta) + F.softplus(noise_delta).sum(1)

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """s of the target tokens (N,), which training brings close to log-probabilities."""
        return super().raw_scores(features_ND, target_N) - self.log_z


class SampledSoftmax(SampledHead):
    """Softmax over the target and k noise tokens, which are weighted to stand for the rest of the vocabulary.

        z_target = scores(h)_target          z_w = scores(h)_w - log(k q_w)    for noise tokens w other than the target
        loss = -z_target + log(exp z_target + sum of exp z_w)

    The argument of the logarithm has the expectation sum_v exp scores(h)_v: a noise token has weight 1 / (k q_w), and
    the target has weight 1. Noise that equals the target is dropped, since it would count the target twice. The
    gradient is biased, less with more noise. The logits are not close to log-probabilities.

    Source: Bengio & Senecal 2008 (importance sampling); Jean et al. 2015.
    """

    flag = "--output-layer sampled"

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        hits = noise.expand(len(target_N), -1).eq(target_N.unsqueeze(1))
        noise_scores_NK = noise_scores_NK - self.log_expected(noise, noise_scores_NK)
        scores = torch.cat((target_scores_N.unsqueeze(1), noise_scores_NK.masked_fill(hits, -torch.inf)), 1)
        return scores.logsumexp(1) - target_scores_N
