"""Cross entropy by blocks of the vocabulary, for vocabularies of which few rows of logits fit into memory.

A first pass over the table gives log Z of every token, a second one computes the logits again and their gradients. That
is four matrix products where ``loss_by_rows.py`` has three over blocks of rows, but each row of the table's gradient is
written once: no pass over V x D for every block, and no V x D numbers in float32 beside a table in bfloat16.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from .loss_options import LossOptions, OutputLoss
from .precision import exact_dtype
from .squared_norms import slices

# Logits in memory at a time: 1 MB of float32, and at least so many words, whose products are efficient.
ELEMENTS, FEWEST_WORDS = 2**18, 256

Gradients = tuple[Tensor | None, ...]  # of features, table, scale and offset


class Logits(NamedTuple):
    """The logits scale_v (w_v . h) + offset_v of N features; products are in the features' dtype."""

    features_ND: Tensor
    table_VD: Tensor
    scale_V: Tensor | None
    offset_V: Tensor | None
    target_N: Tensor

    def complete(self, products: Tensor, where: slice) -> None:
        """Turns products w . h with some words into their logits, in place."""
        if self.scale_V is not None:
            products.mul_(self.scale_V[where])
        if self.offset_V is not None:
            products.add_(self.offset_V[where])

    def blocks(self) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, Tensor]]:
        """Yields for each block of words: slice, rows, logits (N, words), targets' places (N, 1), if they are in it."""
        words = max(FEWEST_WORDS, ELEMENTS // max(1, len(self.features_ND)))
        exact = exact_dtype(self.table_VD)
        for where in slices(len(self.table_VD), words):
            rows = self.table_VD[where].to(self.features_ND.dtype)
            logits = torch.mm(self.features_ND, rows.t()).to(exact)
            self.complete(logits, where)
            place_N1 = (self.target_N - where.start).unsqueeze(1)
            is_here_N1 = (place_N1 >= 0) & (place_N1 < len(rows))
            yield where, rows, logits, place_N1.clamp(0, len(rows) - 1), is_here_N1


def loss_by_words(
    logits: Logits, options: LossOptions, needs_grad: tuple[bool, ...], weights_N: Tensor | None
) -> tuple[OutputLoss, Gradients]:
    """The losses of ``output_loss`` with these options, and the gradients of its inputs.

    ``needs_grad``: of features, table, scale and offset; ``weights_N`` weigh the tokens' losses in the gradients.
    """
    vocabulary = len(logits.table_VD)
    of_target, of_each = options.target_weights(vocabulary)
    log_partition, *sums = _sums(logits, smoothed=of_each > 0)
    loss, nll, of_all = options.cross_entropy(vocabulary, log_partition, *sums)
    losses = OutputLoss(loss.sum(), nll.sum()) if options.reduce else OutputLoss(loss.squeeze(1), nll.squeeze(1))
    if not any(needs_grad):
        return losses, (None,) * 4
    unit = torch.ones_like(nll) if weights_N is None else weights_N.unsqueeze(1)
    factors = of_all * unit, of_each * unit if of_each else None, of_target * unit
    return losses, _gradients(logits, log_partition, factors, needs_grad)


def _sums(logits: Logits, *, smoothed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """log Z, the target's logit, and the sum of all logits if ``smoothed``, each (N, 1)."""
    exact = exact_dtype(logits.table_VD)
    shape = (len(logits.features_ND), 1)
    log_partition = logits.features_ND.new_full(shape, -torch.inf, dtype=exact)
    of_target, total = torch.zeros_like(log_partition), torch.zeros_like(log_partition)
    for _, _, scores, place, is_here in logits.blocks():
        of_target = torch.where(is_here, scores.gather(1, place), of_target)
        if smoothed:
            total += scores.sum(1, keepdim=True)
        log_partition = torch.logaddexp(log_partition, scores.logsumexp(1, keepdim=True))
    return log_partition, of_target, total


def _gradients(
    logits: Logits, log_partition: Tensor, factors: tuple[Tensor, Tensor | None, Tensor], needs_grad: tuple[bool, ...]
) -> Gradients:
    """Gradients of all inputs, from a, b and c (N, 1) of d loss / d z_v = a p(v) - b - c [v = target]."""
    features, table, exact = logits.features_ND, logits.table_VD, log_partition.dtype
    of_all, of_each, of_target = factors
    grad_features = torch.zeros_like(features, dtype=exact) if needs_grad[0] else None
    grad_table = torch.empty_like(table) if needs_grad[1] else None
    grad_scale, grad_offset = (table.new_empty(len(table), dtype=exact) if need else None for need in needs_grad[2:])
    for where, rows, scores, place, is_here in logits.blocks():
        scores.sub_(log_partition).exp_().mul_(of_all)
        if of_each is not None:
            scores.sub_(of_each)
        scores.scatter_add_(1, place, torch.where(is_here, -of_target, 0.0))
        if grad_offset is not None:
            grad_offset[where] = scores.sum(0)
        products = scores.to(features.dtype)
        scale = 1 if logits.scale_V is None else logits.scale_V[where].unsqueeze(1)
        if grad_table is not None or grad_scale is not None:
            of_rows = torch.mm(products.t(), features)
            if grad_scale is not None:
                grad_scale[where] = torch.linalg.vecdot(of_rows.to(exact), rows.to(exact))
            if grad_table is not None:
                grad_table[where] = of_rows * scale
        if grad_features is not None:
            grad_features += torch.mm(products, (rows * scale).to(rows.dtype))
    return grad_features, grad_table, grad_scale, grad_offset
