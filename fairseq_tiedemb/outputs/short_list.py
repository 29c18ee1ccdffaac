"""Softmax over a short-list of tokens, with ``<unk>``'s probability divided among the tokens outside the list."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .._shapes import check_pairs, check_target
from ..embedding import SharedEmbedding
from ..head import log_prob_by_loss
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss, output_loss
from ..scored_rows import ScoredRows
from .counted import CountedHead
from .segments import as_slice, rows_of_sets


class ShortList(CountedHead):
    """Softmax over the N most frequent tokens and ``<unk>``, which stands for the rest of the vocabulary.

        p(v|h) = softmax over the list(scores(h))_v                         for v in the list except <unk>
        p(v|h) = softmax over the list(scores(h))_<unk> c_v / sum of c      for <unk> and v outside the list

    c_v is the count of v in the training text, at least 1, or 1 with ``uniform``. So every token of the dictionary has
    a positive probability, and all V sum to 1. Words outside the dictionary are ``<unk>``. Without the second line, as
    short-lists are often scored, perplexity is too low: a rare word counts as the easy event ``<unk>``. ``tally`` gives
    the sums for that perplexity.

    The loss is the exact cross entropy. Its gradient is the list's, with outside tokens as ``<unk>``: shares are fixed.

    Args:
        table: output embedding of all V tokens, or of the list alone in index order.
        counts, specials: see ``CountedHead``.
        length: N.
        unknown: index of ``<unk>``.
        size: V.
        uniform: whether tokens outside the list are equally probable.

    Raises:
        ValueError: if the dictionary has fewer than N tokens beside ``<unk>`` and the special symbols.

    Source: Schwenk 2007, section 2.2 (short-lists); the shares are unigram probabilities.
    """

    flag = "--output-layer short-list"
    by_target = True
    refuses = ("label_smoothing", "augmented_loss")  # the list has a z-loss of its own

    def __init__(
        self,
        table: SharedEmbedding,
        counts: Tensor | None,
        specials: Sequence[int],
        *,
        length: int,
        unknown: int,
        size: int,
        uniform: bool = False,
    ):
        super().__init__(table, counts, specials, size=size)
        most = size - len({unknown, *specials})
        if not 1 <= length <= most:
            needs = f"1 to {most} words, of those of the dictionary, with {self.flag}"
            use = "2000, say; for all words, --output-layer softmax"
            raise ValueError(f"--short-list: needs {needs}; got {length}. Use {use}.")
        self.unknown, self.uniform = unknown, uniform
        rank = self.counts.clone()
        rank[[unknown, *specials]] = -1
        listed = torch.cat((rank.argsort(descending=True, stable=True)[:length], torch.tensor([unknown])))
        self.listed = nn.Buffer(listed.sort().values)
        self.prepare()

    def prepare(self) -> None:
        """Derives the shares of the tokens outside the list."""
        # Not saved in checkpoints, because they follow from the counts and the list.
        self.has_words = bool(self.counts.any())
        place_of = torch.full_like(self.counts, int(self.listed.lt(self.unknown).sum()))
        place_of[self.listed] = torch.arange(len(self.listed), device=self.listed.device)
        outside = place_of == place_of[self.unknown]
        counts = torch.ones_like(self.counts) if self.uniform else self.counts.clamp(min=1)
        shares = counts.double().masked_fill(~outside | self.never(), 0.0)
        log_share = (shares / shares.sum()).log().masked_fill(~outside, 0.0)  # log 0 of words that are never targets
        self.place_of = nn.Buffer(place_of, persistent=False)
        # Not a buffer: after `.half()` the shares would no longer sum to 1.
        self._log_share = log_share
        is_the_list = self.table.num_embeddings == len(self.listed)
        self.rows_of_list = slice(0, len(self.listed)) if is_the_list else as_slice(self.listed)

    @property
    def log_share(self) -> Tensor:
        """Log share (V,) in float64: log(c_v / sum of c) for tokens outside the list, 0 for tokens on it."""
        self._log_share = self._log_share.to(self.counts.device)
        return self._log_share

    def require_counts(self) -> None:
        if not self.has_words:
            super().require_counts()

    def rows(self) -> ScoredRows:
        """``ScoredRows`` of the list's tokens."""
        self.require_counts()
        rows = self.rows_of_list
        words = self.listed if rows is None else torch.arange(rows.start, rows.stop, device=self.listed.device)
        return rows_of_sets(self.table, [(words, rows)])[0]

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, in float32 or more precise: (*, D) -> (*, V)."""
        of_list = self.rows().scores(self.table.mapped(features)).log_softmax(-1)
        return of_list.index_select(-1, self.place_of) + self.log_share.to(of_list.dtype)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy and the list's z-loss; raises ValueError for other loss options and unknown counts."""
        self.check_options(options)
        check_pairs(features_ND, target_N, len(self.place_of))
        own, mapped, place_N = self.rows(), self.table.mapped(features_ND), self.place_of.index_select(0, target_N)
        cap = own.constants.logit_soft_cap
        loss = output_loss(mapped, own.rows, place_N, scale=own.scale, offset=own.offset, soft_cap=cap, options=options)
        share = self.log_share[target_N].to(loss.loss.dtype)
        share = share.sum() if options.reduce else share
        return OutputLoss(loss.loss - share, loss.nll_loss - share)  # type: ignore[operator]

    log_prob = log_prob_by_loss

    def tally(self, target_N: Tensor) -> dict[str, Tensor]:
        """Number of targets outside the list, and the sum of -log of their shares."""
        check_target(target_N, len(target_N), len(self.place_of))
        outside = self.place_of.index_select(0, target_N) == self.place_of[self.unknown]
        return {"share:outside": outside.sum(), "nll:as_printed": -self.log_share[target_N].sum()}

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """As ``Head.start_bias``; outside tokens share one bias, for their total probability."""
        if log_prob_V is not None:
            outside = self.place_of.to(log_prob_V.device) == self.place_of[self.unknown].to(log_prob_V.device)
            rest = log_prob_V[outside].logsumexp(0)
            log_prob_V = log_prob_V.clone()
            log_prob_V[self.unknown] = rest
            if self.table.num_embeddings == len(self.listed):
                log_prob_V = log_prob_V[self.listed.to(log_prob_V.device)]
        super().start_bias(log_prob_V)
