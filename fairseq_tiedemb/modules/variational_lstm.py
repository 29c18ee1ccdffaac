"""A stack of LSTM layers with variational dropout: separate masks for every gate's input and recurrent state."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .cells import sigmoid_backward, tanh, tanh_backward, without_autocast
from .dropout import variational_mask
from .lstm import Layer, LSTMStack, lstm_without_autocast

GATES = 4  # i, f, g, o: torch's order


class VariationalLSTM(LSTMStack):
    """LSTM layers with variational dropout; gate a of a layer has its own masks p_a (inputs) and q_a (previous h).

        a = W_a (x * p_a) + R_a (h * q_a) + b_a,   a in i, f, g, o
        c' = sigmoid(f) c + sigmoid(i) tanh(g);    h' = sigmoid(o) tanh(c')

    Masks are drawn once per forward pass and row, and hold for all steps. Without masks (in evaluation, or with both
    probabilities 0) torch's fused LSTM kernel runs. ``dropout_i`` and ``dropout_h``, in [0, 1), are the probabilities
    of zero in p and q. ``LSTMStack`` describes the other arguments.

    Source: Gal & Ghahramani 2016, section 4.1, "untied weights"; yaringal/BayesianRNN
    LM_code/main_new_dropout_SOTA_v3.lua, which has a second bias on the recurrent side.
    """

    def __init__(self, *sizes: int, dropout_i: float, dropout_h: float, weight_dropout: float = 0.0):
        super().__init__(*sizes, weight_dropout=weight_dropout)
        self.dropout_i, self.dropout_h = dropout_i, dropout_h

    def reset_parameters(self) -> None:
        """Draws the weights as ``LSTMStack`` does; biases start at 0. A ``StreamLM`` draws both anew."""
        for weight in (*self.weight_ih, *self.weight_hh):
            nn.init.uniform_(weight, -(self.hidden_size**-0.5), self.hidden_size**-0.5)
        for bias in self.bias:
            nn.init.zeros_(bias)

    def forward(self, inputs_TBI: Tensor, state_LBK: Tensor) -> tuple[Tensor, Tensor]:
        layers = self.layers()
        if not self.training or (self.dropout_i == 0 and self.dropout_h == 0):
            return lstm_without_autocast(inputs_TBI, state_LBK, layers)
        outputs, states = inputs_TBI, []
        for state_BK, layer in zip(state_LBK, layers, strict=True):
            masks = [
                variational_mask(p, GATES, len(state_BK), weight.size(1), like=weight)
                for p, weight in zip((self.dropout_i, self.dropout_h), layer, strict=False)
            ]
            outputs, state = masked_lstm(outputs, state_BK, layer, *masks)
            states.append(state)
        return outputs, torch.stack(states)


def masked_lstm(
    inputs_TBI: Tensor, state_BK: Tensor, layer: Layer, mask_i_4BI: Tensor, mask_h_4BH: Tensor
) -> tuple[Tensor, Tensor]:
    """One layer of ``VariationalLSTM`` with given masks p and q (4, B, *), which get no gradient.

    Returns the outputs h (T, B, H), and the last state [h, c] (B, 2H).
    """
    steps, bsz, _ = inputs_TBI.shape
    *weights, bias = layer
    weight_4HI, weight_4HH = (weight.unflatten(0, (GATES, -1)) for weight in weights)
    masked_4NI = (inputs_TBI * mask_i_4BI.unsqueeze(1)).flatten(1, 2)
    gates_4NH = torch.baddbmm(bias.view(GATES, 1, -1), masked_4NI, weight_4HI.transpose(1, 2))
    gates_4TBH = gates_4NH.unflatten(1, (steps, bsz))
    hidden_TBH, cell_BH = _MaskedRecurrence.apply(gates_4TBH, state_BK, weight_4HH, mask_h_4BH)
    return hidden_TBH, torch.cat((hidden_TBH[-1], cell_BH), 1)


class _MaskedRecurrence(torch.autograd.Function):
    """Hidden states of all steps, and the last c, from the inputs' share of the gates."""

    @staticmethod
    @without_autocast
    def forward(
        ctx: Any, gates_4TBH: Tensor, state_BK: Tensor, weight_4HH: Tensor, mask_4BH: Tensor
    ) -> tuple[Tensor, Tensor]:
        gates_4TBH = gates_4TBH.to(weight_4HH.dtype)
        _, steps, bsz, size = gates_4TBH.shape
        hidden, cells = weight_4HH.new_empty(2, steps + 1, bsz, size)
        hidden[0], cells[0] = state_BK[:, :size], state_BK[:, size:]
        gates = weight_4HH.new_empty(steps, GATES, bsz, size)
        tanh_cells = weight_4HH.new_empty(steps, bsz, size)
        masked_4BH = torch.empty_like(mask_4BH)
        transposed = weight_4HH.transpose(1, 2).contiguous()  # products of few rows take 0.7 to 0.8 of the time
        for t in range(steps):
            torch.mul(hidden[t], mask_4BH, out=masked_4BH)
            torch.baddbmm(gates_4TBH[:, t], masked_4BH, transposed, out=gates[t])
            input_gate, forget, candidate, output = gates[t]
            gates[t, :2].sigmoid_()
            tanh(candidate, candidate)
            output.sigmoid_()
            torch.mul(forget, cells[t], out=cells[t + 1]).addcmul_(input_gate, candidate)
            torch.mul(output, tanh(cells[t + 1], tanh_cells[t]), out=hidden[t + 1])
        ctx.save_for_backward(hidden, cells, gates, tanh_cells, weight_4HH, mask_4BH)
        return hidden[1:], cells[-1]

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(ctx: Any, grad_hidden_TBH: Tensor, grad_cell_BH: Tensor) -> tuple[Tensor | None, ...]:
        hidden, cells, gates, tanh_cells, weight_4HH, mask_4BH = ctx.saved_tensors
        steps, _, bsz, size = gates.shape
        grad_gates = gates.new_empty(GATES, steps, bsz, size)
        grad_hidden, grad_cell = torch.zeros_like(grad_cell_BH), grad_cell_BH.clone()
        for t in reversed(range(steps)):
            grad_hidden += grad_hidden_TBH[t]
            input_gate, forget, candidate, output = gates[t]
            grad_input_gate, grad_forget, grad_candidate, grad_output = grad_gates[:, t]
            sigmoid_backward(grad_hidden * tanh_cells[t], output, grad_input=grad_output)
            grad_cell += torch.ops.aten.tanh_backward(grad_hidden * output, tanh_cells[t])
            sigmoid_backward(grad_cell * candidate, input_gate, grad_input=grad_input_gate)
            sigmoid_backward(grad_cell * cells[t], forget, grad_input=grad_forget)
            tanh_backward(grad_cell * input_gate, candidate, grad_input=grad_candidate)
            grad_cell *= forget
            grad_hidden = torch.bmm(grad_gates[:, t], weight_4HH).mul_(mask_4BH).sum(0)
        masked_4NH = (hidden[:-1] * mask_4BH.unsqueeze(1)).flatten(1, 2)
        grad_weight = torch.bmm(grad_gates.flatten(1, 2).transpose(1, 2), masked_4NH)
        return grad_gates, torch.cat((grad_hidden, grad_cell), 1), grad_weight, None
