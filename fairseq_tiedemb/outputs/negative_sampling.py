"""Negative sampling: telling the words that come from words drawn at random."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss, check_plain

NOISE_FOR = ("block", "centre", "pair")
# With noise for a block: features that share noise words, and the fewest words that they share.
BLOCK = 16
BLOCK_NOISE = 64


def distinct(words: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The words that come, each once and rising, and where each of the given ones stands among them.

    Linear in the number of words and V, where ``torch.unique`` sorts.

    Args:
        words: indices in [0, V), (N,).
        size: V.
    """
    found = torch.bincount(words, minlength=size).nonzero().squeeze(1)
    place = words.new_empty(size)
    place[found] = torch.arange(len(found), device=words.device)
    return found, place[words]


class NegativeSampling(nn.Module):
    """The loss of a table whose scores are to tell words apart from noise, without those of all words.

    With features h, the target t, and noise words w_j drawn from q(w) = c(w)^power / sum_v c(v)^power,

        loss = -log sigmoid(s_t) - (k / m) sum_{j=1..m, w_j != t} log sigmoid(-s_{w_j})

    Who shares the m noise words is the ``noise_for``: a "pair" has m = k of its own, as word2vec.c has it; a "centre"
    has m = k for all the predictions from its feature; a "block" of 16 features that follow each other has m = 64 (k,
    if that is more) for all of theirs. The expectation is the same, and so is the gradient's; cost and variance differ.
    What a centre shares makes long steps along few words: its c predictions go k ways, where those of a block go m.
    By that variance a tied table, whose noise moves the inputs too, grows until its loss is above that of a table of
    zeros. Less noise for more features would cost less yet, but what is noise for a whole batch is moved by all of it.

    It is no estimate of -log p(t): at its minimum s_w is log p(w | h) - log(k q(w)), a pointwise mutual information
    less log k where q is the unigram distribution, so there is no perplexity, and ``OutputLoss.nll_loss`` is None.

    In training the noise comes from torch's global generator; else from one that is seeded by the batch's words, so
    that a batch has one loss.

    The gradient is the true one of this loss, where word2vec.c and gensim differ: their sigmoid is a table of 1,000
    steps over [-6, 6], beyond which word2vec.c takes the label less 0 or 1 and gensim leaves the pair out.

    Args:
        table: of the scores; owned by another module.
        counts: c, how often words come, (V,).
        negatives: k.
        power: of the counts.
        noise_for: who has noise words of its own, of ``NOISE_FOR``.

    Raises:
        ValueError: if an argument is out of range, or all counts are 0.

    Source: Mikolov et al. 2013 ("Distributed representations"), section 2.2, equation 4; Levy & Goldberg 2014, section
    3.1 (what s_w is); Ji et al. 2016, section 4 (noise that a batch shares).
    """

    counts: Tensor

    def __init__(
        self, table: SharedEmbedding, counts: Tensor, *, negatives: int, power: float, noise_for: str = "block"
    ):
        super().__init__()
        if not 1 <= negatives <= 10_000:
            raise ValueError(f"--negatives: needs 1 to 10,000; got {negatives}. Use 5, say.")
        if not 0.0 <= power <= 1.0:
            raise ValueError(f"--noise-power: needs a number in [0, 1]; got {power}. Use 0.75, say.")
        if counts.shape != (table.num_embeddings,) or not counts.gt(0).any():
            raise ValueError(
                f"counts: needs one for each of {table.num_embeddings} words, some above 0; got {counts}. Use counts "
                "of the training text."
            )
        self._table = (table,)  # in a tuple, which torch does not search for modules
        self.negatives, self.power, self.noise_for = negatives, power, noise_for
        self.register_buffer("counts", counts.clone())
        self._cumulative: tuple[Tensor, Tensor] | None = None
        self.register_load_state_dict_post_hook(_forget_the_sums)  # counts are read in place

    @property
    def table(self) -> SharedEmbedding:
        """The table of the scores."""
        return self._table[0]

    def noise_distribution(self) -> Tensor:
        """q (V,), in float64."""
        weights = torch.where(self.counts > 0, self.counts.double() ** self.power, 0.0)
        return weights / weights.sum()

    def noise(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Words drawn from q, with replacement.

        Args:
            shape: how many.
            generator: on the CPU; None for torch's own of the device.
        """
        if self._cumulative is None or self._cumulative[0] is not self.counts:
            sums = self.noise_distribution().cumsum(0)
            self._cumulative = self.counts, sums / sums[-1]
        device = self.counts.device
        points = torch.rand(
            shape, dtype=torch.float64, generator=generator, device="cpu" if generator is not None else device
        )
        # The first sum above the point, which is never that of a word with count 0.
        return torch.searchsorted(self._cumulative[1], points.to(device), right=True)

    def loss(
        self,
        features_ND: Tensor,
        target_N: Tensor,
        options: LossOptions = PLAIN_LOSS,
        *,
        rows_N: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> OutputLoss:
        """The loss of the target words, and no ``nll_loss``.

        Args:
            features_ND: h; one for each target, or those that ``rows_N`` points to.
            target_N: the words.
            options: without label smoothing and z-loss.
            rows_N: which of the features each target belongs to; None for its own.
            noise: noise words (G, m) of each pair, feature or block in turn; None to draw them.

        Raises:
            ValueError: for label smoothing or z-loss, which are of probabilities.
        """
        check_plain(options, "negative sampling")
        features_ND = self.table.mapped(features_ND)
        if rows_N is None or self.noise_for == "pair":
            features_ND = features_ND if rows_N is None else features_ND.index_select(0, rows_N)
            rows_N = torch.arange(len(target_N), device=target_N.device)
        each = BLOCK if self.noise_for == "block" else 1
        groups = -(-len(features_ND) // each)
        if noise is None:
            generator = None
            if not self.training:
                generator = torch.Generator().manual_seed(int(target_N.sum()))
            noise = self.noise((groups, max(BLOCK_NOISE, self.negatives) if each > 1 else self.negatives), generator)
        words_U, places = distinct(torch.cat((target_N, noise.flatten())), self.table.num_embeddings)
        known = self.table.rows(words_U)
        target_rows, noise_rows = (known.take(part) for part in places.split((len(target_N), noise.numel())))
        scores_N = target_rows.scores_one_by_one(features_ND.index_select(0, rows_N))
        features_GBD = F.pad(features_ND, (0, 0, 0, groups * each - len(features_ND))).view(groups, each, -1)
        of_noise = F.softplus(noise_rows.scores_in_turn(features_GBD)).sum(1).flatten().index_select(0, rows_N)
        # Noise that is the target has the target's score.
        repeats_N = noise.index_select(0, rows_N // each).eq(target_N.unsqueeze(1)).sum(1)
        of_noise = of_noise - repeats_N * F.softplus(scores_N)
        losses_N = F.softplus(-scores_N) + self.negatives / noise.size(1) * of_noise
        return OutputLoss(losses_N.sum() if options.reduce else losses_N, None)

    def extra_repr(self) -> str:
        return f"{self.negatives} negatives, noise c^{self.power}, each {self.noise_for}'s own"


def _forget_the_sums(sampling: nn.Module, _: Any) -> None:
    assert isinstance(sampling, NegativeSampling)
    sampling._cumulative = None
