"""One time step of a GRU and of an LSTM, forward and backward, on plain tensors.

The package's recurrent layers are autograd Functions over whole sequences (``recurrent.py``, ``conditional_cell.py``).
A step saves the gates for its backward, and the weights' gradients are one matrix product over all steps instead of one
per step. Both cells have the same functions in the same order.

Arguments of a step, with B rows, H units, G = ``gates`` * H and K = ``states`` * H:

    inputs_BG    the input's share of the gates, x W_ih^T + b_ih, computed for all steps at once
    state_BK     the previous state: h, or [h, c]
    weight_GH    recurrent weights W_hh; bias_G the recurrent bias b_hh, or None for zero
    saved        (B, ``kept`` * H), written by ``step``, read by ``step_backward``

Gates are stacked in torch's order, so ``torch.gru`` and ``torch.lstm`` take the same weights.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# These variants write into a given tensor.
sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


def without_autocast(function: Callable[..., Any]) -> Any:
    """Runs an autograd Function's forward or backward in the dtype of its weights, also under ``--amp``.

    Under autocast the inputs and all products would otherwise be in half precision, beside float32 parameters.
    """

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        device = next(arg.device.type for arg in args if isinstance(arg, Tensor))
        with torch.autocast(device, enabled=False):
            return function(*args)

    return run


def _recurrent_share(state_BH: Tensor, weight_GH: Tensor, bias_G: Tensor | None) -> Tensor:
    if bias_G is None:
        return torch.mm(state_BH, weight_GH.t())
    return torch.addmm(bias_G, state_BH, weight_GH.t())


class GRU:
    """Gated recurrent unit: gates r (reset), z (update), n (candidate).

        r, z = sigmoid(inputs_rz + recurrent_rz);  n = tanh(inputs_n + r * recurrent_n);  h' = (1 - z) n + z h

    Source: Cho et al. 2014. The bias of ``recurrent_n`` is inside the reset product, as in torch. A bias outside it, as
    in DL4MT's first GRU, belongs to the inputs.
    """

    name = "gru"
    gates = 3
    states = 1
    kept = 4  # r, z, n, recurrent_n

    @staticmethod
    def step(
        inputs_BG: Tensor, state_BK: Tensor, weight_GH: Tensor, bias_G: Tensor | None, saved: Tensor, out: Tensor
    ) -> None:
        """Writes the next state to ``out`` (B, K)."""
        size = state_BK.size(1)
        recurrent = _recurrent_share(state_BK, weight_GH, bias_G)
        reset_update, update = saved[:, : 2 * size], saved[:, size : 2 * size]
        candidate, recurrent_n = saved[:, 2 * size : 3 * size], saved[:, 3 * size :]
        torch.add(inputs_BG[:, : 2 * size], recurrent[:, : 2 * size], out=reset_update).sigmoid_()
        recurrent_n.copy_(recurrent[:, 2 * size :])
        torch.addcmul(inputs_BG[:, 2 * size :], saved[:, :size], recurrent_n, out=candidate).tanh_()
        torch.addcmul(candidate, update, state_BK - candidate, out=out)

    @staticmethod
    def step_backward(
        grad_state_BK: Tensor,
        saved: Tensor,
        state_BK: Tensor,
        weight_GH: Tensor,
        grad_inputs_BG: Tensor,
        grad_recurrent_BG: Tensor,
    ) -> Tensor:
        """Writes the gradients of the inputs' and the recurrent share; returns the previous state's gradient."""
        reset, update, candidate, recurrent_n = saved.chunk(4, 1)
        grad_reset, grad_update, grad_candidate = grad_inputs_BG.chunk(3, 1)
        kept = grad_state_BK * update
        tanh_backward(grad_state_BK - kept, candidate, grad_input=grad_candidate)
        sigmoid_backward(grad_state_BK * (state_BK - candidate), update, grad_input=grad_update)
        sigmoid_backward(grad_candidate * recurrent_n, reset, grad_input=grad_reset)
        size = state_BK.size(1)
        grad_recurrent_BG[:, : 2 * size] = grad_inputs_BG[:, : 2 * size]
        torch.mul(grad_candidate, reset, out=grad_recurrent_BG[:, 2 * size :])
        return kept.addmm_(grad_recurrent_BG, weight_GH)


class LSTM:
    """Long short-term memory: gates i (input), f (forget), g (candidate), o (output); the state is [h, c].

        i, f, o = sigmoid(.);  g = tanh(.);  c' = f c + i g;  h' = o tanh(c')

    Source: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; no peepholes.
    """

    name = "lstm"
    gates = 4
    states = 2
    kept = 5  # i, f, g, o, tanh(c')

    @staticmethod
    def step(
        inputs_BG: Tensor, state_BK: Tensor, weight_GH: Tensor, bias_G: Tensor | None, saved: Tensor, out: Tensor
    ) -> None:
        """Writes the next state to ``out`` (B, K)."""
        size = state_BK.size(1) // 2
        gates, tanh_cell = saved[:, : 4 * size], saved[:, 4 * size :]
        torch.add(inputs_BG, _recurrent_share(state_BK[:, :size], weight_GH, bias_G), out=gates)
        gates[:, : 2 * size].sigmoid_()
        candidate = gates[:, 2 * size : 3 * size].tanh_()
        output = gates[:, 3 * size :].sigmoid_()
        cell = out[:, size:]
        torch.mul(gates[:, size : 2 * size], state_BK[:, size:], out=cell).addcmul_(gates[:, :size], candidate)
        torch.tanh(cell, out=tanh_cell)
        torch.mul(output, tanh_cell, out=out[:, :size])

    @staticmethod
    def step_backward(
        grad_state_BK: Tensor,
        saved: Tensor,
        state_BK: Tensor,
        weight_GH: Tensor,
        grad_inputs_BG: Tensor,
        grad_recurrent_BG: Tensor,
    ) -> Tensor:
        """Writes the gradients of the inputs' and the recurrent share; returns the previous state's gradient."""
        size = state_BK.size(1) // 2
        input_gate, forget, candidate, output, tanh_cell = saved.chunk(5, 1)
        grad_input_gate, grad_forget, grad_candidate, grad_output = grad_inputs_BG.chunk(4, 1)
        grad_hidden = grad_state_BK[:, :size]
        sigmoid_backward(grad_hidden * tanh_cell, output, grad_input=grad_output)
        grad_cell = torch.ops.aten.tanh_backward(grad_hidden * output, tanh_cell).add_(grad_state_BK[:, size:])
        sigmoid_backward(grad_cell * candidate, input_gate, grad_input=grad_input_gate)
        sigmoid_backward(grad_cell * state_BK[:, size:], forget, grad_input=grad_forget)
        tanh_backward(grad_cell * input_gate, candidate, grad_input=grad_candidate)
        grad_recurrent_BG.copy_(grad_inputs_BG)
        grad_previous = torch.empty_like(grad_state_BK)
        torch.mul(grad_cell, forget, out=grad_previous[:, size:])
        grad_previous[:, :size] = torch.mm(grad_inputs_BG, weight_GH)
        return grad_previous


Cell = type[GRU] | type[LSTM]
CELLS: dict[str, Cell] = {cell.name: cell for cell in (GRU, LSTM)}
