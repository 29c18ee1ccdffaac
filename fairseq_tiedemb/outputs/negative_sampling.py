"""Negative sampling: telling the words that come from words drawn at random."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from .noise import NoiseHead

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


class NegativeSampling(NoiseHead):
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

    flag = "--word2vec-output negative"
    has_probabilities = False

    def __init__(
        self, table: SharedEmbedding, counts: Tensor, *, negatives: int, power: float, noise_for: str = "block"
    ):
        if negatives < 1:
            raise ValueError(f"--negatives: needs at least 1; got {negatives}. Use 5, say.")
        if not 0.0 <= power <= 1.0:
            raise ValueError(f"--noise-power: needs a number in [0, 1]; got {power}. Use 0.75, say.")
        if counts.shape != (table.num_embeddings,) or not counts.gt(0).any():
            raise ValueError(
                f"counts: needs one for each of {table.num_embeddings} words, some above 0; got {counts}. Use counts "
                "of the training text."
            )
        super().__init__(table, counts, (), samples=negatives, power=power)
        self.noise_for = noise_for

    def undrawn(self) -> Tensor:
        """Mask of the words that are no noise (V,): those that the training text lacks."""
        return self.counts.eq(0)

    def scores(self, features: Tensor) -> Tensor:
        """Scores of all words, which are no log-probabilities: (*, D) -> (*, V)."""
        return self.table.scores(features)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """None.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "--word2vec-output: needs full or tree for probabilities of words; got negative. Use one of these."
        )

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """``loss_of_sets`` of targets with a feature of their own."""
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
        """The loss of the target words, and no ``nll_loss``.

        Args:
            features_nD: h, of one target or several.
            target_N: the words.
            rows_N: the feature of each target.
            options: without label smoothing and z-loss.
            noise: noise words (G, m) of each pair, feature or block in turn; None to draw them.

        Raises:
            ValueError: for label smoothing or z-loss, which are of probabilities.
        """
        self.check_options(options)
        features_nD = self.table.mapped(features_nD)
        if self.noise_for == "pair":
            features_nD = features_nD.index_select(0, rows_N)
            rows_N = torch.arange(len(target_N), device=target_N.device)
        together = BLOCK if self.noise_for == "block" else 1
        groups = -(-len(features_nD) // together)
        if noise is None:
            generator = None
            if not self.training:
                generator = torch.Generator().manual_seed(int(target_N.sum()))
            noise = self.noise.draw(
                (groups, max(BLOCK_NOISE, self.samples) if together > 1 else self.samples), generator
            )
        words_U, places = distinct(torch.cat((target_N, noise.flatten())), self.table.num_embeddings)
        known = self.table.rows(words_U)
        target_rows, noise_rows = (known.take(part) for part in places.split((len(target_N), noise.numel())))
        scores_N = target_rows.scores_one_by_one(features_nD.index_select(0, rows_N))
        features_GBD = F.pad(features_nD, (0, 0, 0, groups * together - len(features_nD))).view(groups, together, -1)
        of_noise = F.softplus(noise_rows.scores_in_turn(features_GBD)).sum(1).flatten().index_select(0, rows_N)
        # Noise that is the target has the target's score.
        repeats_N = noise.index_select(0, rows_N // together).eq(target_N.unsqueeze(1)).sum(1)
        of_noise = of_noise - repeats_N * F.softplus(scores_N)
        losses_N = F.softplus(-scores_N) + self.samples / noise.size(1) * of_noise
        return OutputLoss(losses_N.sum() if options.reduce else losses_N, None)

    def extra_repr(self) -> str:
        return f"{self.samples} negatives, noise c^{self.power}, each {self.noise_for}'s own"
