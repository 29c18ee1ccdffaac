"""The steps of a recurrent layer with a hand-written backward pass, for every cell."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .cells import Cell, state_dtype, without_autocast


class Recurrence(torch.autograd.Function):
    """The steps of a recurrent layer, from the input's share of the gates (T, B, G) and a first state (B, K).

    Returns h of all steps (T, B, H) in the dtype of the recurrent weights, and the last state in the first one's.
    """

    @staticmethod
    @without_autocast
    def forward(ctx: Any, cell: Cell, gates_TBG: Tensor, state_BK: Tensor, weight_GH: Tensor) -> tuple[Tensor, Tensor]:
        size = weight_GH.size(1)
        gates_TBG = gates_TBG.to(state_dtype(weight_GH))
        steps, bsz, _ = gates_TBG.shape
        states = gates_TBG.new_empty(steps + 1, *state_BK.shape)
        states[0] = state_BK
        saved = gates_TBG.new_empty(steps, bsz, cell.kept * size)
        for t in range(steps):
            cell.step(gates_TBG[t], states[t], weight_GH, None, saved[t], states[t + 1])
        ctx.cell = cell
        ctx.save_for_backward(states, saved, weight_GH)
        # A copy of the last state, since two outputs that share memory are refused.
        return states[1:, :, :size].to(weight_GH.dtype), states[-1].to(state_BK.dtype, copy=True)

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(ctx: Any, grad_hidden_TBH: Tensor, grad_last_BK: Tensor) -> tuple[Tensor | None, ...]:
        states, saved, weight_GH = ctx.saved_tensors
        size = weight_GH.size(1)
        grads = ctx.cell.derivatives(saved, states[:-1])
        grad_state = grad_last_BK.to(states.dtype, copy=True)
        for t in reversed(range(len(saved))):
            grad_state[:, :size] += grad_hidden_TBH[t]
            grad_state = ctx.cell.step_backward(grad_state, saved[t], weight_GH, grads[t])
        grads = grads.to(weight_GH.dtype)
        hidden = states[:-1, :, :size].to(weight_GH.dtype)
        grad_weight = ctx.cell.of_recurrent(grads).flatten(0, 1).t() @ hidden.flatten(0, 1)
        return None, ctx.cell.of_inputs(grads), grad_state, grad_weight
