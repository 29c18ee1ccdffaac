"""A recurrent highway network: several highway layers within each time step."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .cells import sigmoid_backward, tanh, tanh_backward, without_autocast
from .dropout import variational_mask


class RecurrentHighwayNetwork(nn.Module):
    """Recurrent layer with ``depth`` highway layers per time step; for layers l = 1 ... depth and state s,

        h_l = tanh(   [W_h (x * p), l = 1 only] + R_hl (s_{l-1} * q) + b_hl)
        t_l = sigmoid([W_t (x * p), l = 1 only] + R_tl (s_{l-1} * q) + b_tl)
        s_l = s_{l-1} + (h_l - s_{l-1}) t_l;    s_0 is the previous step's s_depth, and the output is s_depth

    The carry gate is coupled: 1 - t. In training, dropout masks p and q are drawn once per forward pass and row. They
    hold for all steps, all depths, and both h and t. ``dropout_i`` and ``dropout_h``, in [0, 1), are the probabilities
    of zero in p and q.

    Weights start uniform in +-1 / sqrt(hidden_size), b_h at 0, and b_t at ``transform_bias``, below 0, so that layers
    start near the identity. A ``StreamLM`` draws all but b_t anew.

    Source: Zilly et al. 2017, equations 6-9; their TensorFlow program, jzilly/RecurrentHighwayNetworks rhn.py.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        depth: int,
        *,
        dropout_i: float,
        dropout_h: float,
        transform_bias: float = -2.0,
    ):
        super().__init__()
        self.hidden_size = hidden_size
        self.dropout_i = dropout_i
        self.dropout_h = dropout_h
        self.weight_input = nn.Parameter(torch.empty(2 * hidden_size, input_size))  # W_h over W_t
        self.weight_recurrent = nn.Parameter(torch.empty(depth, 2 * hidden_size, hidden_size))  # R_h over R_t
        self.bias_candidate = nn.Parameter(torch.zeros(depth, hidden_size))  # b_h
        self.bias_transform = nn.Parameter(torch.full((depth, hidden_size), transform_bias))  # b_t
        for weight in (self.weight_input, self.weight_recurrent):
            nn.init.uniform_(weight, -(hidden_size**-0.5), hidden_size**-0.5)

    def initial_state(self, bsz: int) -> Tensor:
        """A zero state (1, B, H)."""
        return self.bias_transform.new_zeros(1, bsz, self.hidden_size)

    def forward(self, inputs_TBI: Tensor, state_LBK: Tensor) -> tuple[Tensor, Tensor]:
        """Runs all steps from a state (1, B, H); returns the outputs (T, B, H) and the last state (1, B, H)."""
        _, bsz, width = inputs_TBI.shape
        mask_i = mask_h = None
        if self.training:
            mask_i = variational_mask(self.dropout_i, bsz, width, like=self.weight_input)
            mask_h = variational_mask(self.dropout_h, bsz, self.hidden_size, like=self.weight_recurrent)
        bias = torch.cat((self.bias_candidate, self.bias_transform), 1)
        outputs = highway(inputs_TBI, state_LBK[0], self.weight_input, self.weight_recurrent, bias, mask_i, mask_h)
        return outputs, outputs[-1:].clone()  # fairseq's --temperature divides outputs in place


def highway(
    inputs_TBI: Tensor,
    state_BH: Tensor,
    weight_input: Tensor,
    weight_recurrent: Tensor,
    bias: Tensor,
    mask_i_BI: Tensor | None,
    mask_h_BH: Tensor | None,
) -> Tensor:
    """Outputs (T, B, H) of ``RecurrentHighwayNetwork`` with given masks p and q, which get no gradient.

    ``bias`` (depth, 2H) is [b_h, b_t]; a mask of None stands for 1.
    """
    if mask_i_BI is not None:
        inputs_TBI = inputs_TBI * mask_i_BI
    gates_TBG = F.linear(inputs_TBI, weight_input, bias[0])
    return _HighwayRecurrence.apply(gates_TBG, state_BH, weight_recurrent, bias[1:], mask_h_BH)


class _HighwayRecurrence(torch.autograd.Function):
    """Outputs of all steps from the inputs' share of the first highway layer's h and t (G = 2H: h, then t).

    The highway layers of all steps form one chain of T * depth states.
    """

    @staticmethod
    @without_autocast
    def forward(
        ctx: Any, gates_TBG: Tensor, state_BH: Tensor, weight_LGH: Tensor, upper_bias_lG: Tensor, mask_BH: Tensor | None
    ) -> Tensor:
        gates_TBG = gates_TBG.to(weight_LGH.dtype)
        steps, bsz, _ = gates_TBG.shape
        depth, _, size = weight_LGH.shape
        states = weight_LGH.new_empty(steps * depth + 1, bsz, size)
        states[0] = state_BH
        gates = weight_LGH.new_empty(steps * depth, bsz, 2 * size)
        transposed = weight_LGH.transpose(1, 2).contiguous()  # products of few rows take 0.7 to 0.8 of the time
        for k in range(steps * depth):
            t, layer = divmod(k, depth)
            share = gates_TBG[t] if layer == 0 else upper_bias_lG[layer - 1]
            masked = states[k] if mask_BH is None else states[k] * mask_BH
            torch.addmm(share, masked, transposed[layer], out=gates[k])
            candidate, transform = gates[k, :, :size], gates[k, :, size:].sigmoid_()
            tanh(candidate, candidate)
            torch.lerp(states[k], candidate, transform, out=states[k + 1])
        ctx.save_for_backward(states, gates, weight_LGH, mask_BH)
        # A copy, since a view kept as the next initial state would keep the whole chain in memory.
        return states[depth::depth].clone()

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(ctx: Any, grad_outputs_TBH: Tensor) -> tuple[Tensor | None, ...]:
        states, gates, weight_LGH, mask_BH = ctx.saved_tensors
        depth, _, size = weight_LGH.shape
        candidate, transform = gates[..., :size], gates[..., size:]
        # Derivatives of every state by its pre-activations; the loop multiplies them by the states' gradients.
        grad_gates = torch.empty_like(gates)
        tanh_backward(transform, candidate, grad_input=grad_gates[..., :size])
        sigmoid_backward(candidate - states[:-1], transform, grad_input=grad_gates[..., size:])
        grad_state = torch.zeros_like(states[0])
        for k in reversed(range(len(gates))):
            t, layer = divmod(k, depth)
            if layer == depth - 1:
                grad_state += grad_outputs_TBH[t]
            grad_gates[k].unflatten(1, (2, size)).mul_(grad_state.unsqueeze(1))
            grad_state = torch.addcmul(grad_state, grad_state, transform[k], value=-1)
            if mask_BH is None:
                torch.addmm(grad_state, grad_gates[k], weight_LGH[layer], out=grad_state)
            else:
                grad_state.addcmul_(torch.mm(grad_gates[k], weight_LGH[layer]), mask_BH)

        grad_weight = torch.empty_like(weight_LGH)
        for layer in range(depth):
            masked = states[layer:-1:depth] if mask_BH is None else states[layer:-1:depth] * mask_BH
            torch.mm(grad_gates[layer::depth].flatten(0, 1).t(), masked.flatten(0, 1), out=grad_weight[layer])
        grad_gates_TLBG = grad_gates.unflatten(0, (-1, depth))
        return grad_gates_TLBG[:, 0], grad_state, grad_weight, grad_gates_TLBG[:, 1:].sum((0, 2)), None
