"""Squared norms of rows, n_v = ||w_v||^2, with gradients, without overflow and with little memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

# Elements per block. On a CPU a block is a megabyte of float32, which stays in the cache over several passes. On a GPU
# the number of kernels sets the cost, and blocks only bound memory.
CACHED_ELEMENTS = 2**18
ELEMENTS = 2**25


def squared_norms(rows: Tensor) -> Tensor:
    """||w||^2 (*,) of rows (*, D), with a gradient, in float32 or more precise.

    In float64 where float32 overflows (norms above 1.8e19), and always where ``_has_values`` is false.
    """
    if _has_values(rows):
        squares = rows.to(torch.promote_types(rows.dtype, torch.float32)).square().sum(-1)
        if not squares.isinf().any():
            return squares
    # torch defines the norm's gradient at 0 as 0.
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()


def _has_values(rows: Tensor) -> bool:
    """Whether numbers can be looked at: a GPU would wait for all kernels; "meta" and torch.export have none."""
    return rows.device.type == "cpu" and not torch.compiler.is_compiling()


def with_squared_norms(table_VD: Tensor) -> tuple[Tensor, Tensor]:
    """The table unchanged and n_v = ||w_v||^2 (V,), in float32 or more precise, with gradients to the table.

    Pass the returned table to ``output_loss`` only: its gradient is modified in place.
    """
    return _WithSquaredNorms.apply(table_VD)


class _WithSquaredNorms(torch.autograd.Function):
    """Adds the norms' gradient to the table's in one pass, in place: autograd would hold both V x D gradients."""

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
    """``squared_norms`` of a table (V, D), without a gradient and without a second V x D tensor."""
    if _has_values(table):
        exact = torch.promote_types(table.dtype, torch.float32)
        squares = torch.cat([torch.linalg.vector_norm(table[rows].to(exact), dim=1) for rows in blocks(table)]).square()
        if not squares.isinf().any():
            return squares
    parts = [torch.linalg.vector_norm(table[rows], dim=1, dtype=torch.float64) for rows in blocks(table)]
    return torch.cat(parts).square()


def blocks(matrix: Tensor, together: int = 1) -> Iterator[slice]:
    """Slices of rows, sized so that several passes over one block stay in the cache; multiples of ``together`` rows."""
    elements = CACHED_ELEMENTS if matrix.device.type == "cpu" else ELEMENTS
    return slices(len(matrix), max(1, elements // matrix.size(1) // together) * together)


def slices(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of ``size`` rows; one empty slice for length 0."""
    return (slice(first, first + size) for first in range(0, max(1, length), max(1, size)))
