"""Squared norms of rows, n_v = ||w_v||^2, with gradients, without overflow and with little memory."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .precision import exact, exact_dtype

# Elements per block. On a CPU a block is a megabyte of float32, which stays in the cache over several passes. On a GPU
# the number of kernels sets the cost, and blocks only bound memory.
CACHED_ELEMENTS = 2**18
ELEMENTS = 2**25


def squared_norms(rows: Tensor) -> Tensor:
    """||w||^2 (*,) of rows (*, D), with a gradient, in float32 or more precise.

    In float64 where float32 overflows (norms above 1.8e19), and always on a GPU, on "meta" and in a compiled model.
    """
    # What depends on numbers makes a GPU wait for all its kernels; "meta" and torch.export have none.
    if rows.device.type == "cpu" and not torch.compiler.is_compiling():
        if rows.requires_grad and torch.is_grad_enabled():  # the norm has no second derivative at 0, as of padding
            squares = exact(rows).square().sum(-1)
        else:
            squares = torch.linalg.vector_norm(exact(rows), dim=-1).square()  # no second tensor of squares
        if not squares.isinf().any():
            return squares
    # torch defines the norm's gradient at 0 as 0.
    return torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64).square()


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
        return table.view_as(table), torch.cat([squared_norms(table[rows]) for rows in blocks(table)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_table: Tensor, grad_norms: Tensor | None) -> Tensor:
        (table,) = ctx.saved_tensors
        if grad_norms is None:
            return grad_table
        dtype = exact_dtype(table)
        factor = grad_norms.mul(2).to(dtype).unsqueeze(1)
        for rows in blocks(table):
            grad = grad_table[rows]
            if grad.dtype == dtype:
                grad.addcmul_(table[rows], factor[rows])
            else:
                grad.copy_(exact(grad).addcmul_(exact(table[rows]), factor[rows]))
        return grad_table


def blocks(matrix: Tensor, together: int = 1) -> Iterator[slice]:
    """Slices of rows, sized so that several passes over one block stay in the cache; multiples of ``together`` rows."""
    elements = CACHED_ELEMENTS if matrix.device.type == "cpu" else ELEMENTS
    return slices(len(matrix), max(1, elements // matrix.size(1) // together) * together)


def slices(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of ``size`` rows; one empty slice for length 0."""
    return (slice(first, first + size) for first in range(0, max(1, length), max(1, size)))
