"""Training losses on a few sampled tokens: noise-contrastive estimation and the sampled softmax."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..embedding import SharedEmbedding
from .counted import CountedHead, unigram


class SampledHead(CountedHead):
    """Base of heads that train on the target and k noise tokens, and evaluate with the full softmax.

        q_v = max(counts_v, 1)^power / sum_u max(counts_u, 1)^power     over tokens that can be targets

    Noise is drawn with replacement from torch's generator of the features' device, which fairseq seeds before each
    update. Targets and noise of a batch are gathered in one lookup, so the table gets one gradient.

    Args:
        table, counts, marks: see ``CountedHead``.
        samples: k.
        power: exponent of the counts in q.
        shared: whether all tokens of a batch share their noise, which needs one matrix product and a larger k. Separate
            noise takes N k rows of memory.
    """

    def __init__(
        self,
        table: SharedEmbedding,
        counts: Tensor | None,
        marks: Sequence[int],
        *,
        samples: int = 100,
        power: float = 1.0,
        shared: bool = True,
    ):
        super().__init__(table, counts, marks)
        self.samples = samples
        self.power = power
        self.shared = shared
        # Cumulative q and log(k q), both (V,) and float64. Buffers would lose their precision in `.half()`.
        self._noise: tuple[Tensor, Tensor] | None = None

    def prepare(self) -> None:
        """Drops the cached q, which ``noise`` computes again."""
        self._noise = None

    def noise(self) -> tuple[Tensor, Tensor]:
        """Cumulative q, and log(k q), the log of each token's expected count in the noise: (V,), float64."""
        if self._noise is None or self._noise[0].device != self.counts.device:
            q = unigram(self.counts, self.power).masked_fill(self.never(), 0.0)
            cumulated = q.cumsum(0)
            self._noise = cumulated / cumulated[-1], (q / cumulated[-1] * self.samples).log()
        return self._noise

    def draw(self, *shape: int) -> Tensor:
        """Noise tokens by inversion, in time log V each; ``torch.multinomial`` is linear in V and stops at V = 2^24."""
        cumulated, _ = self.noise()
        return torch.searchsorted(
            cumulated, torch.rand(shape, dtype=cumulated.dtype, device=cumulated.device), right=True
        )

    def surrogate(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """The training loss of each target token (N,)."""
        count = len(target_N)
        noise = self.draw(self.samples) if self.shared else self.draw(count, self.samples)
        mapped_ND = self.table.mapped(features_ND)
        rows = self.table.rows(torch.cat((target_N, noise.flatten())))
        noise_rows = rows.part(slice(count, None))
        target_scores_N = rows.part(slice(count)).scores_one_by_one(mapped_ND)
        if self.shared:
            noise_scores_NK = noise_rows.scores(mapped_ND)
        else:
            noise_scores_NK = noise_rows.scores_in_turn(mapped_ND.unsqueeze(1)).squeeze(2)
        return self.losses(target_scores_N, noise_scores_NK, target_N, noise)

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        """Losses (N,), given the logits of targets and noise; ``noise`` holds tokens, (K,) or (N, K)."""
        raise NotImplementedError

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logit of each target token (N,), computed from the target rows alone."""
        return self.table.raw_scores(features_ND, target_N)

    def log_expected(self, words: Tensor, scores: Tensor) -> Tensor:
        """log(k q) of the given tokens, in the dtype of ``scores``."""
        return self.noise()[1][words].to(scores.dtype)


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
        super().__init__(table, counts, marks, samples=samples, power=power, shared=shared)
        self.log_z = log_z

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        """Losses (N,) of the class's equation."""
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
        """Losses (N,) of the class's equation."""
        hits = noise.expand(len(target_N), -1).eq(target_N.unsqueeze(1))
        noise_scores_NK = noise_scores_NK - self.log_expected(noise, noise_scores_NK)
        scores = torch.cat((target_scores_N.unsqueeze(1), noise_scores_NK.masked_fill(hits, -torch.inf)), 1)
        return scores.logsumexp(1) - target_scores_N
