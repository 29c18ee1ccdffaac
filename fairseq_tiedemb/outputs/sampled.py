"""Training by a few words drawn as noise instead of all words: noise-contrastive estimation and the sampled softmax."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .._shapes import check_target
from ..embedding import SharedEmbedding
from .counted import CountedHead, unigram


class SampledHead(CountedHead):
    """A head that is trained by each word of the text and k words of noise; in evaluation it is the full softmax.

        q_v = max(counts_v, 1)^power / sum_u max(counts_u, 1)^power     over the words that can be targets

    Noise is drawn with replacement by torch's random numbers of the features' device, which fairseq seeds anew before
    each update. A batch's targets and noise are gathered from the table at once, so that it gets one gradient.

    Args:
        table: which scores words.
        counts: of the words (V,); None if they come with a checkpoint.
        marks: indices of fairseq's symbols that are no words.
        samples: k.
        power: of the counts in q.
        shared: whether all words of a batch have the same noise, which makes it one product; k should be larger then.
            Noise of its own for each word takes N k rows in memory.
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
        # Cumulated q and log(k q), both (V,) and float64. Not buffers: they stay exact after `.half()`.
        self._noise: tuple[Tensor, Tensor] | None = None

    def prepare(self) -> None:
        """Forgets q, which is made anew when it is needed."""
        self._noise = None

    def noise(self) -> tuple[Tensor, Tensor]:
        """Cumulated q, and log(k q), the logarithm of how often each word is expected in the noise: (V,), float64."""
        if self._noise is None or self._noise[0].device != self.counts.device:
            q = unigram(self.counts, self.power).masked_fill(self.never(), 0.0)
            cumulated = q.cumsum(0)
            self._noise = cumulated / cumulated[-1], (q / cumulated[-1] * self.samples).log()
        return self._noise

    def draw(self, *shape: int) -> Tensor:
        """Noise words of this shape.

        By inversion, in logarithmic time a word; ``torch.multinomial`` takes time linear in V and at most 2^24 words.
        """
        cumulated, _ = self.noise()
        return torch.searchsorted(
            cumulated, torch.rand(shape, dtype=cumulated.dtype, device=cumulated.device), right=True
        )

    def surrogate(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """The loss of each word (N,)."""
        count = len(features_ND)
        check_target(target_N, count, len(self.counts))
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
        """Losses (N,), given the scores of targets and noise words.

        Args:
            target_scores_N: of the targets.
            noise_scores_NK: of the noise words.
            target_N: the targets.
            noise: the noise words, (K,) or (N, K).
        """
        raise NotImplementedError

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Scores of given words (N,), not normalised, at the cost of these words alone."""
        return self.table.raw_scores(features_ND, target_N)

    def log_expected(self, words: Tensor, scores: Tensor) -> Tensor:
        """log(k q) of words, in the precision of scores."""
        return self.noise()[1][words].to(scores.dtype)


class NoiseContrastive(SampledHead):
    """Noise-contrastive estimation: tells each word of the text from k words of noise.

        s_v = scores(h)_v - log_z       delta_v = s_v - log(k q_v)
        loss = softplus(-delta_target) + sum of softplus(delta_noise) over k words drawn from q

    The more noise, the closer the gradient is to that of maximum likelihood, and so the scores to log-probabilities:
    the model normalises itself. A noise word that is the target stays, as the derivation has it.

    Args:
        table: which scores words.
        counts: of the words (V,); None if they come with a checkpoint.
        marks: indices of fairseq's symbols that are no words.
        samples: k.
        power: of the counts in q.
        shared: whether all words of a batch have the same noise.
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
        super().__init__(table, counts, marks, samples=samples, power=power, shared=shared)
        self.log_z = log_z

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        """The equation's losses."""
        target_delta = target_scores_N - self.log_z - self.log_expected(target_N, target_scores_N)
        noise_delta = noise_scores_NK - self.log_z - self.log_expected(noise, noise_scores_NK)
        return F.softplus(-target_delta) + F.softplus(noise_delta).sum(1)

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """s of given words (N,), which training brings close to their log-probabilities."""
        return super().raw_scores(features_ND, target_N) - self.log_z


class SampledSoftmax(SampledHead):
    """The softmax over each word of the text and k words of noise that stand for all others.

        z_target = scores(h)_target          z_w = scores(h)_w - log(k q_w)    for noise words w other than the target
        loss = -z_target + log(exp z_target + sum of exp z_w)

    What is in the logarithm has the expectation sum_v exp scores(h)_v: a word drawn from q stands for 1 / (k q_w)
    words, and the target, there once and not drawn, for itself. Drawn too, it would be there twice. The
    gradient is biased, the less the more noise; the scores are not close to log-probabilities.

    Source: Bengio & Senecal 2008 (importance sampling); Jean et al. 2015.
    """

    flag = "--output-layer sampled"

    def losses(self, target_scores_N: Tensor, noise_scores_NK: Tensor, target_N: Tensor, noise: Tensor) -> Tensor:
        """The equation's losses."""
        hits = noise.expand(len(target_N), -1).eq(target_N.unsqueeze(1))
        noise_scores_NK = noise_scores_NK - self.log_expected(noise, noise_scores_NK)
        scores = torch.cat((target_scores_N.unsqueeze(1), noise_scores_NK.masked_fill(hits, -torch.inf)), 1)
        return scores.logsumexp(1) - target_scores_N
