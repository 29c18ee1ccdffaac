"""The softmax over a short list of words, with what it gives to ``<unk>`` given back to the words outside."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from .._shapes import check_target
from ..embedding import ScoredRows, SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss, output_loss
from .counted import CountedHead
from .segments import as_slice, segments


class ShortList(CountedHead):
    """A softmax over the N most frequent words and ``<unk>``, which stands for all others.

        p(v|h) = softmax over the list(scores(h))_v                         for v in the list, but for <unk>
        p(v|h) = softmax over the list(scores(h))_<unk> c_v / sum of c      over the words outside and <unk>

    with c_v the count of v in the training text, and 1 for a word that does not occur in it: a proper distribution
    over all V words. Without the second line, as short-lists are often scored, rare words are the easy event
    ``<unk>``, and perplexity is too low; ``tally`` tells that one too. A word that does not occur in the training
    text counts as one that occurs once, so that its probability is not 0; a word that is not in the dictionary is
    ``<unk>``, and gets what the text's own has.

    The loss is the exact cross entropy. Its gradient is that of the list's, with words outside as ``<unk>``, since the
    shares of the words outside have no parameters.

    Args:
        table: which scores words: all V of them, or those of the list alone, in the order of their indices.
        counts: of the words (V,); None if they come with a checkpoint.
        marks: indices of fairseq's symbols that are no words.
        length: N.
        unknown: index of ``<unk>``.
        size: V.

    Raises:
        ValueError: if there are not so many words besides ``<unk>`` and marks.

    Source: Schwenk 2007, section 2.2 (short-lists); the shares are unigram probabilities.
    """

    flag = "--output-layer short-list"
    by_target = True
    listed: Tensor
    place_of: Tensor

    def __init__(
        self,
        table: SharedEmbedding,
        counts: Tensor | None,
        marks: Sequence[int],
        *,
        length: int,
        unknown: int,
        size: int,
    ):
        super().__init__(table, counts, marks, size=size)
        most = size - len({unknown, *marks})
        if not 1 <= length <= most:
            raise ValueError(
                f"--short-list: needs 1 to {most} words, of those of the dictionary, with {self.flag}; got {length}. "
                "Use 2000, say; for all words, --output-layer softmax."
            )
        self.unknown = unknown
        rank = self.counts.clone()
        rank[[unknown, *marks]] = -1
        listed = torch.cat((rank.argsort(descending=True, stable=True)[:length], torch.tensor([unknown])))
        self.register_buffer("listed", listed.sort().values)
        self.prepare()

    def prepare(self) -> None:
        """Makes the shares of the words outside."""
        # No buffers that checkpoints keep: they follow from the counts and the list.
        self.has_words = bool(self.counts.any())
        place_of = torch.full_like(self.counts, int(self.listed.lt(self.unknown).sum()))
        place_of[self.listed] = torch.arange(len(self.listed), device=self.listed.device)
        outside = place_of == place_of[self.unknown]
        shares = self.counts.double().clamp(min=1).masked_fill(~outside | self.never(), 0.0)
        log_share = (shares / shares.sum()).log().masked_fill(~outside, 0.0).masked_fill(self.never(), -torch.inf)
        self.register_buffer("place_of", place_of, persistent=False)
        # No buffer: it stays exact after `.half()`, where the shares would no longer add up to 1.
        self._log_share = log_share
        is_the_list = self.table.num_embeddings == len(self.listed)
        self.rows_of_list = slice(0, len(self.listed)) if is_the_list else as_slice(self.listed)

    @property
    def log_share(self) -> Tensor:
        """What each word has of what the list leaves to it, (V,) in float64: log(c_v / sum of c) outside, 0 on it."""
        if self._log_share.device != self.counts.device:
            self._log_share = self._log_share.to(self.counts.device)
        return self._log_share

    def require_counts(self) -> None:
        """Checks that there is a training text behind the list.

        Raises:
            ValueError: if there is none.
        """
        if not self.has_words:
            super().require_counts()

    def refuse(self, options: LossOptions) -> None:
        """Refuses what needs the scores of all words; the list has a z-loss of its own.

        Raises:
            ValueError: for label smoothing.
        """
        super().refuse(dataclasses.replace(options, z_loss=0.0))

    def rows(self) -> ScoredRows:
        """What the scores of the list's words are made of."""
        self.require_counts()
        rows = self.rows_of_list
        words = self.listed if rows is None else torch.arange(rows.start, rows.stop, device=self.listed.device)
        of_list = [words if rows is None else rows]
        bias = None if self.table.bias is None else segments(self.table.bias, of_list)[0]
        return self.table.scored(segments(self.table.weight, of_list)[0], words, bias)

    def scores(self, features: Tensor) -> Tensor:
        """Logarithms of the probabilities of all words, in float32 at least: (*, D) -> (*, V)."""
        of_list = self.rows().scores(self.table.mapped(features)).log_softmax(-1)
        return of_list.index_select(-1, self.place_of) + self.log_share.to(of_list.dtype)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy of the target words, and z-loss of the list's normaliser.

        Raises:
            ValueError: for label smoothing, or if there is no training text.
        """
        self.refuse(options)
        check_target(target_N, len(features_ND), len(self.place_of))
        list_, mapped, place_N = self.rows(), self.table.mapped(features_ND), self.place_of.index_select(0, target_N)
        found = output_loss(mapped, list_.rows, place_N, scale=list_.scale, offset=list_.offset, options=options)
        share = self.log_share[target_N].to(found.loss.dtype)
        share = share.sum() if options.reduce else share
        return OutputLoss(found.loss - share, found.nll_loss - share)  # type: ignore[operator]

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logarithms of the probabilities of given words (N,), by the scores of the list alone."""
        return -self.loss(features_ND, target_N, LossOptions(reduce=False)).loss

    def tally(self, target_N: Tensor) -> dict[str, Tensor]:
        """How many words are outside the list, and -log of their shares, which the perplexity as printed leaves out."""
        check_target(target_N, len(target_N), len(self.place_of))
        outside = self.place_of.index_select(0, target_N) == self.place_of[self.unknown]
        return {"outside": outside.sum(), "outside_nll": -self.log_share[target_N].sum()}

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the biases so that, without features, words have these probabilities; None for biases of 0.

        Only the probability of all words outside together can be set.
        """
        if log_prob_V is not None:
            outside = self.place_of.to(log_prob_V.device) == self.place_of[self.unknown].to(log_prob_V.device)
            rest = log_prob_V[outside].logsumexp(0)
            log_prob_V = log_prob_V.clone()
            log_prob_V[self.unknown] = rest
            if self.table.num_embeddings == len(self.listed):
                log_prob_V = log_prob_V[self.listed.to(log_prob_V.device)]
        self.table.start_bias(log_prob_V)
