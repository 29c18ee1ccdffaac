"""The steps of a recurrent layer with a hand-written backward pass, for every cell."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..precision import exact_dtype
from ..products import over_rows, packed
from .cells import Cell, for_gradients, for_products, rounded, without_autocast


class Recurrence(torch.autograd.Function):
    """The steps of a recurrent layer, from the input's share of the gates (T, B, G) and a first state (B, K).

    Returns h of all steps (T, B, H) in the dtype of the recurrent weights, and the last state in the first one's.
    """

    @staticmethod
    @without_autocast
    def forward(ctx: Any, cell: Cell, gates_TBG: Tensor, state_BK: Tensor, weight_GH: Tensor) -> tuple[Tensor, Tensor]:
        size, dtype = weight_GH.size(1), weight_GH.dtype
        gates_TBG = gates_TBG.to(exact_dtype(weight_GH))
        steps, bsz, _ = gates_TBG.shape
        states = gates_TBG.new_empty(steps + 1, *state_BK.shape)
        states[0] = state_BK
        hidden = for_products(states[..., :size], dtype)
        rounded(states[0, :, :size], hidden[0])
        saved = gates_TBG.new_empty(steps, bsz, cell.kept * size)
        weight = packed(weight_GH, steps)
        for t in range(steps):
            now, new = (states[t], hidden[t]), (states[t + 1], hidden[t + 1])
            cell.step(gates_TBG[t], now, weight, None, saved[t], new)
        ctx.cell = cell
        ctx.save_for_backward(states, hidden, saved, weight_GH)
        # A copy of the last state, since two outputs that share memory are refused.
        return hidden[1:], states[-1].to(state_BK.dtype, copy=True)

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(ctx: Any, grad_hidden_TBH: Tensor, grad_last_BK: Tensor) -> tuple[Tensor | None, ...]:
        states, hidden, saved, weight_GH = ctx.saved_tensors
        cell, size = ctx.cell, weight_GH.size(1)
        weight_HG = for_gradients(weight_GH.roll(cell.rolled * size, 0), len(saved))
        grads = cell.derivatives(saved, states[:-1])
        products = for_products(grads, weight_GH.dtype)
        grad_state = grad_last_BK.to(states.dtype, copy=True)
        for t in reversed(range(len(saved))):
            grad_state[:, :size] += grad_hidden_TBH[t]
            grad_state = cell.step_backward(grad_state, saved[t], weight_HG, grads[t], products[t])
        grad_weight = over_rows(cell.of_recurrent(products), hidden[:-1])
        return None, cell.of_inputs(products), grad_state, grad_weight.roll(-cell.rolled * size, 0)
