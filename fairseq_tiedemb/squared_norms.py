"""Squared norms of rows, n_v = ||w_v||^2, with their gradients, in the precision and the memory that they need."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Elements of a block that is passed over several times: a megabyte of float32, which stays in a CPU's cache. Elsewhere
# the number of kernels is what costs, and blocks only bound memory.
CACHED_ELEMENTS = 2**18
ELEMENTS = 2**25


def squared_norms(rows: Tensor) -> Tensor:
    """||w||^2 (*,) of rows (*, D), with a gradient, in float32 at least.

    In float64 where float32 overflows, for rows longer than 1.8e19; on a GPU always, where to look for them would wait
    for all that is being computed.
    """
    if not rows.is_cuda:
        found = rows.to(torch.promote_types(rows.dtype, torch.float32)).square().sum(-1)
        if not found.isinf().any():
            return found
    # The norm's gradient is 0 at 0.
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()


def with_squared_norms(table_VD: Tensor) -> tuple[Tensor, Tensor]:
    """A table as ``output_loss`` takes it, and n_v = ||w_v||^2 (V,) in float32 at least, with gradients to the table.

    What comes back of the table is for ``output_loss`` alone: its gradient is changed in place on the way.
    """
    return _WithSquaredNorms.apply(table_VD)


class _WithSquaredNorms(torch.autograd.Function):
    """A table, unchanged, and its n (V,); the norms' share of the gradient is added to the other in one pass, in place.

    Without it autograd holds the two V x D gradients side by side before it adds them.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(table)
        ctx.set_materialize_grads(False)
        return table.view_as(table), _norms_of_table(table)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_table: Tensor | None, grad_norms: Tensor | None) -> Tensor | None:
        (table,) = ctx.saved_tensors
        if grad_norms is None:
            return grad_table
        if grad_table is None:
            grad_table = torch.zeros_like(table)
        exact = torch.promote_types(table.dtype, torch.float32)
        factor = grad_norms.mul(2).to(exact).unsqueeze(1)
        for rows in blocks(table):
            grad = grad_table[rows]
            if grad.dtype == exact:
                grad.addcmul_(table[rows], factor[rows])
            else:
                grad.copy_(grad.to(exact).addcmul_(table[rows].to(exact), factor[rows]))
        return grad_table


def _norms_of_table(table: Tensor) -> Tensor:
    """``squared_norms`` of a table (V, D), without a gradient, and without another V x D in memory."""
    if not table.is_cuda:
        norms = table.new_empty(len(table), dtype=torch.promote_types(table.dtype, torch.float32))
        for rows in blocks(table):
            torch.linalg.vector_norm(table[rows].to(norms.dtype), dim=1, out=norms[rows])
        found = norms.square()
        if not found.isinf().any():
            return found
    parts = [torch.linalg.vector_norm(table[rows], dim=1, dtype=torch.float64) for rows in blocks(table)]
    return torch.cat(parts).square()


def blocks(matrix: Tensor) -> Iterator[slice]:
    """Slices of so many rows as are passed over several times at once."""
    elements = CACHED_ELEMENTS if matrix.device.type == "cpu" else ELEMENTS
    return slices(len(matrix), max(1, elements // matrix.size(1)))


def slices(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of so many rows; an empty one for no rows at all."""
    return (slice(first, first + size) for first in range(0, max(1, length), max(1, size)))
