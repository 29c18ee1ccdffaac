"""Several sets of a tensor's rows, with a single gradient for all sets."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def segments(tensor: Tensor, sets: Sequence[slice | Tensor]) -> tuple[Tensor, ...]:
    """The rows of a tensor (V, *) in several disjoint sets, given as slices or index tensors.

    A slice is not copied, so results must not be modified in place. All gradients go into one tensor, where indexing
    set by set would allocate a full-size gradient per set.
    """
    return _Segments.apply(tensor, sets)


def as_slice(rows: Tensor) -> slice | None:
    """Sorted row indices (K,), K > 0, as a slice if they are consecutive, else None."""
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
