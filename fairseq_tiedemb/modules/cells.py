"""One time step of a GRU and of an LSTM, forward and backward, on plain tensors.

The package's recurrent layers are autograd Functions over whole sequences (``recurrence.py``, ``conditional_cell.py``).
Only what the recurrence needs is done step by step. The weights' gradients are one matrix product over all steps, and
the derivatives of the gates are taken for all steps at once. Both cells have the same functions in the same order.

Products have the dtype of the weights. States, gates and their gradients have at least float32 (``exact_dtype``). What
products take of them is rounded once, into tensors of ``for_products``, which are views of them where dtypes are equal.

Arguments, with B rows, H units, G = ``gates`` * H and K = ``states`` * H:

    inputs_BG    the input's share of the gates, x W_ih^T + b_ih, computed for all steps at once
    now, new     the previous and the next state: h, or [h, c] (B, K), and its h for products (B, H)
    weight_GH    recurrent weights W_hh, maybe packed; bias the recurrent bias b_hh, or None for zero
    weight_HG    the same for ``step_backward``, of ``for_gradients``
    saved        (B, ``kept`` * H), written by ``step``, read by the other two
    grads        (B, ``kept`` * H): derivatives of the next state, which ``step_backward`` multiplies by its gradient

Gates are stacked in torch's order, so ``torch.gru`` and ``torch.lstm`` take the same weights. Only ``of_recurrent`` and
weight_HG have them rolled, by ``rolled`` gates: a part of the gradients, it needs no copy.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..products import in_use, packed, product

# These variants write into a given tensor.
sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input
State = tuple[Tensor, Tensor]


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


def tanh(x: Tensor, out: Tensor) -> Tensor:
    """tanh(x) = 2 sigmoid(2x) - 1, into ``out``, which may be x; its absolute error in float32 is 2e-7.

    torch's is MKL's: on AMD's processors it takes five times as long (tests/benchmarks/test_attention_nmt.py).
    """
    if x.device.type != "cpu" or x.dtype.itemsize < torch.float32.itemsize:
        return torch.tanh(x, out=out)
    return torch.mul(x, 2, out=out).sigmoid_().mul_(2).sub_(1)


def for_products(values: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor in ``dtype`` for ``rounded`` to fill: ``values`` itself if it has that dtype, else a new, empty one."""
    return values if values.dtype == dtype else values.new_empty(values.shape, dtype=dtype)


def rounded(values: Tensor, out: Tensor) -> Tensor:
    """Rounds values into ``out``, a tensor of ``for_products`` or a part of one; returns it."""
    return out if out.dtype == values.dtype else out.copy_(values)


def for_gradients(weight: Tensor, uses: int) -> Tensor:
    """The transposed weight for so many products with gradients, packed if oneDNN multiplies others of its dtype."""
    by_onednn = weight.dtype == torch.bfloat16 or (not torch.compiler.is_compiling() and in_use() == "onednn")
    return packed(weight.t().contiguous(), uses) if by_onednn else weight.t()


def add_product(total: Tensor, inputs: Tensor, weight: Tensor, factor: float = 1.0) -> Tensor:
    """Adds factor * inputs @ weight^T to ``total`` in place, whose dtype may differ from theirs; returns it."""
    if total.dtype == inputs.dtype and not weight.is_mkldnn:
        return total.addmm_(inputs, weight.t(), alpha=factor)
    return total.add_(product(inputs, weight), alpha=factor)


class GRU:
    """Gated recurrent unit: gates r (reset), z (update), n (candidate).

        r, z = sigmoid(inputs_rz + recurrent_rz);  n = tanh(inputs_n + r * recurrent_n);  h' = (1 - z) n + z h

    Source: Cho et al. 2014. The bias of ``recurrent_n`` is inside the reset product, as in torch. A bias outside it, as
    in DL4MT's first GRU, belongs to the inputs.
    """

    gates = 3
    states = 1
    kept = 4  # r, z, n, recurrent_n
    rolled = 1

    @staticmethod
    def step(inputs_BG: Tensor, now: State, weight_GH: Tensor, bias: Tensor | None, saved: Tensor, new: State) -> None:
        """Writes the next state to ``new``."""
        (state_BK, hidden_BH), (out, out_hidden) = now, new
        size = state_BK.size(1)
        recurrent = product(hidden_BH, weight_GH, bias)
        reset_update, update = saved[:, : 2 * size], saved[:, size : 2 * size]
        candidate, recurrent_n = saved[:, 2 * size : 3 * size], saved[:, 3 * size :]
        torch.add(inputs_BG[:, : 2 * size], recurrent[:, : 2 * size], out=reset_update).sigmoid_()
        recurrent_n.copy_(recurrent[:, 2 * size :])
        tanh(torch.addcmul(inputs_BG[:, 2 * size :], saved[:, :size], recurrent_n, out=candidate), candidate)
        torch.addcmul(candidate, update, state_BK - candidate, out=out)
        rounded(out, out_hidden)

    @staticmethod
    def derivatives(saved_TBS: Tensor, states_TBK: Tensor) -> Tensor:
        """Derivatives of the next states by recurrent_n, r, z and n before their nonlinearities, for all steps."""
        reset, update, candidate, recurrent_n = saved_TBS.chunk(4, 2)
        derivatives = torch.empty_like(saved_TBS)
        by_recurrent_n, by_reset, by_update, by_candidate = derivatives.chunk(4, 2)
        tanh_backward(1 - update, candidate, grad_input=by_candidate)
        sigmoid_backward(by_candidate * recurrent_n, reset, grad_input=by_reset)
        sigmoid_backward(states_TBK - candidate, update, grad_input=by_update)
        torch.mul(by_candidate, reset, out=by_recurrent_n)
        return derivatives

    @staticmethod
    def step_backward(grad_state_BK: Tensor, saved: Tensor, weight_HG: Tensor, grads: Tensor, out: Tensor) -> Tensor:
        """Turns derivatives into gradients in place, and for products; returns the previous state's gradient."""
        size = grad_state_BK.size(1)
        grads.unflatten(1, (4, size)).mul_(grad_state_BK.unsqueeze(1))
        kept = grad_state_BK * saved[:, size : 2 * size]
        return add_product(kept, rounded(grads, out)[:, : 3 * size], weight_HG)

    @staticmethod
    def of_inputs(grads: Tensor) -> Tensor:
        """The gradient of the inputs' share."""
        return grads[..., grads.size(-1) // 4 :]

    @staticmethod
    def of_recurrent(grads: Tensor) -> Tensor:
        """The gradient of the recurrent share, with the gates n, r, z."""
        return grads[..., : grads.size(-1) // 4 * 3]


class LSTM:
    """Long short-term memory: gates i (input), f (forget), g (candidate), o (output); the state is [h, c].

        i, f, o = sigmoid(.);  g = tanh(.);  c' = f c + i g;  h' = o tanh(c')

    Source: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; no peepholes.
    """

    gates = 4
    states = 2
    kept = 5  # i, f, g, o, tanh(c')
    rolled = 0

    @staticmethod
    def step(inputs_BG: Tensor, now: State, weight_GH: Tensor, bias: Tensor | None, saved: Tensor, new: State) -> None:
        (state_BK, hidden_BH), (out, out_hidden) = now, new
        size = state_BK.size(1) // 2
        gates, tanh_cell = saved[:, : 4 * size], saved[:, 4 * size :]
        torch.add(inputs_BG, product(hidden_BH, weight_GH, bias), out=gates)
        gates[:, : 2 * size].sigmoid_()
        candidate = gates[:, 2 * size : 3 * size]
        tanh(candidate, candidate)
        output = gates[:, 3 * size :].sigmoid_()
        cell = out[:, size:]
        torch.mul(gates[:, size : 2 * size], state_BK[:, size:], out=cell).addcmul_(gates[:, :size], candidate)
        tanh(cell, tanh_cell)
        rounded(torch.mul(output, tanh_cell, out=out[:, :size]), out_hidden)

    @staticmethod
    def derivatives(saved_TBS: Tensor, states_TBK: Tensor) -> Tensor:
        """Derivatives of c' by i, f and g before their nonlinearities, and of h' by o and c', for all steps."""
        input_gate, forget, candidate, output, tanh_cell = saved_TBS.chunk(5, 2)
        derivatives = torch.empty_like(saved_TBS)
        by_input_gate, by_forget, by_candidate, by_output, by_cell = derivatives.chunk(5, 2)
        sigmoid_backward(candidate, input_gate, grad_input=by_input_gate)
        sigmoid_backward(states_TBK[..., states_TBK.size(2) // 2 :], forget, grad_input=by_forget)
        tanh_backward(input_gate, candidate, grad_input=by_candidate)
        sigmoid_backward(tanh_cell, output, grad_input=by_output)
        tanh_backward(output, tanh_cell, grad_input=by_cell)
        return derivatives

    @staticmethod
    def step_backward(grad_state_BK: Tensor, saved: Tensor, weight_HG: Tensor, grads: Tensor, out: Tensor) -> Tensor:
        size = grad_state_BK.size(1) // 2
        grad_hidden, grad_cell = grad_state_BK.split(size, 1)
        grad_cell = torch.addcmul(grad_cell, grad_hidden, grads[:, 4 * size :])
        grads[:, : 3 * size].unflatten(1, (3, size)).mul_(grad_cell.unsqueeze(1))
        grads[:, 3 * size : 4 * size].mul_(grad_hidden)
        previous = torch.empty_like(grad_state_BK)
        previous[:, :size] = product(rounded(grads, out)[:, : 4 * size], weight_HG)
        torch.mul(grad_cell, saved[:, size : 2 * size], out=previous[:, size:])
        return previous

    @staticmethod
    def of_inputs(grads: Tensor) -> Tensor:
        return grads[..., : grads.size(-1) // 5 * 4]

    of_recurrent = of_inputs


Cell = type[GRU] | type[LSTM]
CELLS: dict[str, Cell] = {"gru": GRU, "lstm": LSTM}
