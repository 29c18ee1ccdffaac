"""Negative sampling: a binary loss that separates the target word from words drawn at random."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .._shapes import check_pairs, check_target
from ..embedding import SharedEmbedding
from ..kept import Kept
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from ..sparse_rows import distinct
from .counted import CountedHead
from .noise import Noise
from .pair_steps import BLOCK, BLOCK_NOISE, learn_in_steps, sizes_of_steps

NOISE_FOR = ("block", "centre", "pair")


class NegativeSampling(CountedHead):
    """Loss of a table that scores target words above noise words, without the logits of the whole vocabulary.

    With features h, the target t, and noise words w_j drawn from q(w) = c(w)^power / sum_v c(v)^power,

        loss = -log sigmoid(s_t) - (k / m) sum_{j=1..m, w_j != t} log sigmoid(-s_{w_j})

    ``noise_for`` says which predictions share their m noise words:

        pair      no sharing, m = k, as in word2vec.c
        centre    all predictions from one feature vector, m = k
        block     all predictions from 8 consecutive feature vectors, m = max(64, k)

    The expectations of loss and gradient are equal; cost and variance differ. Noise per centre has the largest
    variance: all of a centre's predictions move the same k noise words. A tied table, where noise moves the inputs too,
    then grows until its loss exceeds that of a zero table.

    The loss is no estimate of -log p(t): at its minimum s_w = log(p / (1 - p)) - log(k q(w)), p = p(w | h); for small p
    and unigram q nearly the pointwise mutual information less log k. So there is no perplexity: ``nll_loss`` is None.
    Training draws noise from torch's global generator; evaluation seeds one from the batch, so a batch has one loss.

    Args:
        table, counts: see ``CountedHead``.
        negatives: k.
        power: exponent of the counts.
        noise_for: one of ``NOISE_FOR``.

    Raises:
        ValueError: if the counts are not one a word, one is below 0, or all are 0.

    Source: Mikolov et al. 2013 ("Distributed representations"), section 2.2, equation 4; Levy & Goldberg 2014, section
    3.1 (optimal s_w); Ji et al. 2016, section 4 (noise shared by a batch).
    """

    flag = "--output-layer negative-sampling"

    def __init__(
        self, table: SharedEmbedding, counts: Tensor, *, negatives: int, power: float, noise_for: str = "block"
    ):
        super().__init__(table, counts, ())
        if not counts.gt(0).any():
            raise ValueError(f"counts: needs some above 0; got {counts}. Use counts of the training text.")
        self.negatives, self.power, self.noise_for = negatives, power, noise_for
        self._noise = Kept()

    @property
    def noise(self) -> Noise:
        """The distribution q of noise words, over the words of the training text."""
        return self._noise.of(lambda: Noise(self.counts, self.power, self.counts.eq(0)), [self.counts])

    def scores(self, features: Tensor) -> Tensor:
        """Scores of all words, which are no log-probabilities: (*, D) -> (*, V)."""
        return self.table.scores(features)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Raises ValueError: the loss defines no probabilities."""
        needs = "softmax or tree for word probabilities"
        raise ValueError(f"--output-layer: needs {needs}; got negative-sampling. Use softmax, say.")

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """``loss_of_sets`` of targets with a feature of their own."""
        check_pairs(features_ND, target_N, self.table.num_embeddings)
        return self.loss_of_sets(features_ND, target_N, torch.arange(len(target_N), device=target_N.device), options)

    def loss_of_sets(
        self,
        features_nD: Tensor,
        target_N: Tensor,
        rows_N: Tensor,
        options: LossOptions = PLAIN_LOSS,
        *,
        noise: Tensor | None = None,
    ) -> OutputLoss:
        """The loss of the target words, without ``nll_loss``; ``rows_N`` has the row of h for each target.

        Loss options raise ValueError. ``noise`` are noise words (G, m), one row per pair, centre or block; None draws
        them.
        """
        self.check_options(options)
        check_target(target_N, len(rows_N), self.table.num_embeddings)
        features_nD = self.table.mapped(features_nD)
        if self.noise_for == "pair":
            features_nD = features_nD.index_select(0, rows_N)
            rows_N = torch.arange(len(target_N), device=target_N.device)
        block_size = self._block_size
        groups = -(-len(features_nD) // block_size)
        if noise is None:
            noise = self._draw(groups, None if self.training else int(target_N.sum()))
        words_U, places = distinct(torch.cat((target_N, noise.flatten())), self.table.num_embeddings)
        known = self.table.rows(words_U)
        target_rows, noise_rows = (known.take(part) for part in places.split((len(target_N), noise.numel())))
        scores_N = target_rows.scores_one_by_one(features_nD.index_select(0, rows_N))
        features_GBD = F.pad(features_nD, (0, 0, 0, groups * block_size - len(features_nD)))
        features_GBD = features_GBD.view(groups, block_size, features_nD.size(1))
        of_noise = F.softplus(noise_rows.scores_in_turn(features_GBD)).sum(1).flatten().index_select(0, rows_N)
        # Noise equal to the target is subtracted again; its logit is the target's.
        repeats_N = noise.index_select(0, rows_N // block_size).eq(target_N.unsqueeze(1)).sum(1)
        of_noise = of_noise - repeats_N * F.softplus(scores_N)
        losses_N = F.softplus(-scores_N) + self.negatives / noise.size(1) * of_noise
        return OutputLoss(losses_N.sum() if options.reduce else losses_N, None)

    def learns_in_steps(self, inputs: SharedEmbedding) -> bool:
        """Whether ``loss_in_steps`` can learn these input embeddings: the tables are plain, and are trained."""
        trained = all(table.is_plain and table.weight.requires_grad for table in (inputs, self.table))
        return trained and self.table.weight.dtype.itemsize >= 4

    def loss_in_steps(
        self, inputs: SharedEmbedding, words_n: Tensor, target_N: Tensor, rows_N: Tensor, rate: float
    ) -> OutputLoss:
        """``loss_of_sets`` of words' vectors, which the tables have learned on return; see ``learn_in_steps``."""
        check_target(target_N, len(rows_N), self.table.num_embeddings)
        if self.noise_for == "pair":
            words_n, rows_N = words_n.index_select(0, rows_N), torch.arange(len(target_N), device=target_N.device)
        noise = self._draw(sum(-(-size // self._block_size) for size in sizes_of_steps(len(words_n))))
        tables, words = (inputs.weight.detach(), self.table.weight.detach()), (words_n, target_N, rows_N, noise)
        loss = learn_in_steps(*tables, *words, block_size=self._block_size, negatives=self.negatives, rate=rate)
        return OutputLoss(loss, None)

    @property
    def _block_size(self) -> int:
        return BLOCK if self.noise_for == "block" else 1

    def _draw(self, groups: int, seed: int | None = None) -> Tensor:
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        count = max(BLOCK_NOISE, self.negatives) if self.noise_for == "block" else self.negatives
        return self.noise.draw((groups, count), generator)

    def extra_repr(self) -> str:
        return f"{self.negatives} negatives, noise c^{self.power}, each {self.noise_for}'s own"
