"""The class-based softmax: a softmax over word classes, then a softmax over the tokens of one class."""

import logging
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._shapes import check_pairs
from ..embedding import SharedEmbedding
from ..head import no_counts
from ..precision import exact
from ..products import blas_linear
from .class_file import of_another_file
from .counted import CountedHead
from .segments import as_slice, rows_of_sets

logger = logging.getLogger(__name__)
NONE = -1  # class number of tokens without a class, whose probability is 0


class ClassBased(CountedHead):
    """Softmax over C classes times a softmax over the tokens of the target's class.

        p(v|h) = p(c(v)|h) p(v|c(v), h)         p(c|h) = softmax(K f(h) + k)_c
        p(v|c, h) = softmax over the tokens of c of the table's scores(h)

    f(h) are the features as the table maps them, times its ``logit_scale``; a cap is for the logits of tokens alone.
    Training and evaluation are exact: the loss of a token needs about 2 sqrt(V) logits instead of V. The table may be
    shared with any sharing method; the classes' table K belongs to this head. Checkpoints hold the class of every
    token, so loading needs neither the training text nor the file of classes.

    Args:
        table, counts, specials: see ``CountedHead``.
        classes: largest number of classes by frequency; see ``frequency_bins``.
        class_of: class of each token (V,), which replaces classes by frequency.
        problem: error to raise if the classes are needed before a checkpoint brings them.

    Source: Goodman 2001 (classes for speed); Mikolov et al. 2011 (classes by frequency, in neural language models).
    """

    flag = "--output-layer classes"
    by_target = True

    def __init__(
        self,
        table: SharedEmbedding,
        counts: Tensor | None,
        specials: Sequence[int],
        *,
        classes: int = 100,
        class_of: Tensor | None = None,
        problem: ValueError | None = None,
    ):
        super().__init__(table, counts, specials)
        self.problem = problem
        self.by_file = class_of is not None
        if class_of is None:
            class_of = torch.full_like(self.counts, NONE)
            if problem is None and counts is not None:
                class_of = frequency_bins(self.counts.masked_fill(self.never(), 0), classes)
        class_of = class_of.masked_fill(self.never(), NONE)
        has_class = class_of.ne(NONE)
        numbers = class_of[has_class].unique(return_inverse=True)[1]  # without gaps
        self.class_of = nn.Buffer(class_of.masked_scatter(has_class, numbers))
        self.prepare()
        self.classes = nn.Linear(table.embedding_dim, max(1, len(self.sizes)))
        self.register_load_state_dict_pre_hook(_fit)
        if self.sizes:
            logger.info(f"{self.flag}: {len(self.sizes):,} classes of {min(self.sizes):,} to {max(self.sizes):,} words")

    def prepare(self) -> None:
        """Derives the lists of tokens by class, each in the order of the token indices."""
        # Not saved in checkpoints, because they follow from ``class_of``.
        members = self.class_of.argsort(stable=True)[int(self.class_of.eq(NONE).sum()) :]
        self.sizes = torch.bincount(self.class_of[members]).tolist()
        place_of = torch.zeros_like(self.class_of)
        self.sets: list[slice | None] = []  # a slice for classes of consecutive tokens
        for words in members.split(self.sizes):
            place_of[words] = torch.arange(len(words), device=words.device)
            self.sets.append(as_slice(words))
        self.members = nn.Buffer(members, persistent=False)
        self.place_of = nn.Buffer(place_of, persistent=False)

    @property
    def words(self) -> tuple[Tensor, ...]:
        """The token indices of each class."""
        return self.members.split(self.sizes)

    def require_counts(self) -> None:
        """Raises ValueError if the classes are unknown: their file is unusable, or the training text is missing."""
        if not self.sizes:
            raise self.problem or no_counts(self.flag)

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of the whole vocabulary, in float32 or more precise: (*, D) -> (*, V)."""
        self.require_counts()
        of_words = exact(self.table.scores(features))
        of_classes = self.log_prob_of_classes(self.table.mapped(features))
        parts = [
            of_class.unsqueeze(-1) + of_words[..., words].log_softmax(-1)
            for words, of_class in zip(self.words, of_classes.unbind(-1), strict=True)
        ]
        return torch.full_like(of_words, -torch.inf).index_copy(-1, torch.cat(self.words), torch.cat(parts, -1))

    def log_prob_of_classes(self, mapped: Tensor) -> Tensor:
        """log p(c|h) of mapped features f(h), in float32 or more precise: (*, D) -> (*, C)."""
        return exact(self.classes(mapped)).log_softmax(-1)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Log-probabilities of the target tokens (N,), from the logits of their classes alone."""
        self.require_counts()
        check_pairs(features_ND, target_N, len(self.class_of))
        class_N = self.class_of.index_select(0, target_N)
        # Positions of the targets with a class, sorted by class.
        order = class_N.argsort(stable=True)[int(class_N.eq(NONE).sum()) :]
        sizes = torch.bincount(class_N[order], minlength=len(self.sizes)).tolist()
        mapped, place = self.table.mapped(features_ND)[order], self.place_of[target_N[order]]
        of_class = self.log_prob_of_classes(mapped).gather(1, class_N[order].unsqueeze(1)).squeeze(1)
        # One at least, so that every parameter has a gradient: DistributedDataParallel waits for all.
        present = [each for each, size in enumerate(sizes) if size] or [0]
        sizes = [sizes[number] for number in present]
        in_class, sets = [of_class[:0]], list(zip(self.words, self.sets, strict=True))
        rows_of_present = rows_of_sets(self.table, [sets[number] for number in present])
        for rows, own, target in zip(rows_of_present, mapped.split(sizes), place.split(sizes), strict=True):
            in_class.append(-F.cross_entropy(rows.scores(own, blas_linear), target, reduction="none"))
        log_prob_N = torch.full_like(class_N, -torch.inf, dtype=of_class.dtype)
        return log_prob_N.index_copy(0, order, of_class + torch.cat(in_class))

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        super().start_bias(log_prob_V)
        with torch.no_grad():
            self.classes.bias.zero_()
            if log_prob_V is not None:
                for number, words in enumerate(self.words):
                    self.classes.bias[number] = log_prob_V[words.to(log_prob_V.device)].logsumexp(0)


def _same_classes(one: Tensor, other: Tensor) -> bool:
    """Whether two numberings (V,) put the same tokens together."""
    return torch.stack((one, other)).unique(dim=1).size(1) == len(one.unique()) == len(other.unique())


def frequency_bins(counts: Tensor, classes: int) -> Tensor:
    """Word classes by frequency (V,), each with about the same share of the sum of the counts' square roots.

    Tokens come by falling count, ties by index. A token joins the current class i. If the tokens so far then hold more
    than (i + 1) / C of the sum, class i + 1 begins, up to the last class. Fewer than C may result.

    Source: Mikolov's rnnlm toolkit, version 0.4 (the classes of its option ``-class`` without ``-old-classes``).
    """
    order = counts.argsort(descending=True, stable=True)
    shares = counts[order].double().sqrt()
    class_by_rank, current = [], 0
    for share in (shares.cumsum(0) / shares.sum()).tolist():
        class_by_rank.append(current)
        if share > (current + 1) / classes and current < classes - 1:
            current += 1
    return torch.empty_like(counts).index_copy(0, order, torch.tensor(class_by_rank, device=counts.device))


def _fit(head: ClassBased, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Resizes the classes' table to that of the checkpoint about to be loaded."""
    class_of, table = (state_dict.get(prefix + name) for name in ("class_of", "classes.weight"))
    if class_of is None or table is None or class_of.shape != head.class_of.shape:  # torch says so
        return
    if head.sizes and not _same_classes(class_of.to(head.class_of), head.class_of):
        logger.warning(f"{head.flag}: the {len(table):,} classes are those of the checkpoint, not those of the options")
        if head.by_file:
            head.not_to_be_trained = of_another_file("classification")
    if len(table) != head.classes.out_features:
        # The Parameter objects stay, because optimisers hold them.
        head.classes.out_features = len(table)
        head.classes.weight.data = head.classes.weight.data.new_empty(len(table), head.classes.in_features)
        head.classes.bias.data = head.classes.bias.data.new_empty(len(table))
