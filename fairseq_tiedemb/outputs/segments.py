"""Rows of a tensor in several sets, with one gradient for all of them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def segments(tensor: Tensor, sets: Sequence[slice | Tensor]) -> tuple[Tensor, ...]:
    """The rows of a tensor (V, *) in each of several sets that have no row in common.

    Rows that follow each other, given as a slice, are not copied; what comes back must not be changed in place. All
    gradients are written into one tensor, where indexing set by set would make a gradient of the whole tensor for each.

    Args:
        tensor: a table, or a bias.
        sets: of rows: slices, or indices.
    """
    return _Segments.apply(tensor, sets)


def as_slice(rows: Tensor) -> slice | None:
    """Rows as a slice, where they follow each other; rows (K,) are in rising order, and not none."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first == len(rows) - 1 else None


class _Segments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, sets: Sequence[slice | Tensor]) -> tuple[Tensor, ...]:
        ctx.sets, ctx.like = sets, (tensor.shape, tensor.dtype, tensor.device)
        ctx.set_materialize_grads(False)
        return tuple(tensor[rows] for rows in sets)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor, None]:
        shape, dtype, device = ctx.like
        whole = torch.zeros(shape, dtype=dtype, device=device)
        for rows, grad in zip(ctx.sets, grads, strict=True):
            if grad is not None:
                whole[rows] = grad
        return whole, None
