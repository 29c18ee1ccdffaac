"""A recurrent layer over whole sequences, and a bidirectional encoder layer made of two."""

import torch
from torch import Tensor, nn

from .cells import LSTM, Cell
from .initialization import gaussian_or_orthogonal_
from .lstm import fused_lstm, kernel_options, lstm_without_autocast
from .recurrence import Recurrence


class RecurrentLayer(nn.Module):
    """One GRU or LSTM layer in one direction, with one bias per gate.

    On a GPU cuDNN runs the steps. On a CPU ``fused_lstm`` runs an LSTM, and an autograd Function a GRU. The layer
    ignores padding: sequences start at step 0, and padding after them has no effect on their outputs.
    """

    def __init__(self, input_size: int, hidden_size: int, cell: Cell):
        super().__init__()
        self.cell = cell
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(cell.gates * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(cell.gates * hidden_size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(cell.gates * hidden_size))
        gaussian_or_orthogonal_(self.weight_ih, blocks=cell.gates)
        gaussian_or_orthogonal_(self.weight_hh, blocks=cell.gates)

    def forward(self, inputs_TBI: Tensor, state_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Runs all steps from a state h or [h, c] (B, K); returns the outputs h (T, B, H) and the last state."""
        layer = (self.weight_ih, self.weight_hh, self.bias)
        if self.cell is LSTM:
            run = fused_lstm if inputs_TBI.is_cuda else lstm_without_autocast
            outputs, states = run(inputs_TBI, state_BK.unsqueeze(0), [layer])
        elif inputs_TBI.is_cuda:
            weights = [*layer, torch.zeros_like(self.bias)]
            outputs, states = torch.gru(inputs_TBI, state_BK.unsqueeze(0).contiguous(), weights, *kernel_options(1))
        else:
            gates_TBG = nn.functional.linear(inputs_TBI, self.weight_ih, self.bias)
            return Recurrence.apply(self.cell, gates_TBG, state_BK, self.weight_hh)
        return outputs, states[0]


class BidirectionalLayer(nn.Module):
    """Two recurrent layers, one reading left to right and one right to left.

    ``hidden_size`` is the H of one direction; see ``RecurrentLayer`` for the other arguments.
    """

    def __init__(self, input_size: int, hidden_size: int, cell: Cell):
        super().__init__()
        self.forwards = RecurrentLayer(input_size, hidden_size, cell)
        self.backwards = RecurrentLayer(input_size, hidden_size, cell)

    def forward(self, inputs_BSI: Tensor, padding_BS: Tensor) -> Tensor:
        """Outputs [h_forward, h_backward] (B, S, 2H), zero at padding.

        Padding (``padding_BS`` true) may be anywhere and does not influence other positions.
        """
        # Stable sorts by the padding mask move the tokens to the front, from left to right and from right to left.
        forward_order = torch.argsort(padding_BS.byte(), dim=1, stable=True)
        backward_order = padding_BS.size(1) - 1 - torch.argsort(padding_BS.flip(1).byte(), dim=1, stable=True)
        forwards = self._run(self.forwards, inputs_BSI, forward_order)
        backwards = self._run(self.backwards, inputs_BSI, backward_order)
        return torch.cat((forwards, backwards), -1).masked_fill(padding_BS.unsqueeze(-1), 0.0)

    @staticmethod
    def _run(layer: RecurrentLayer, inputs_BSI: Tensor, order_BS: Tensor) -> Tensor:
        (bsz, length), rows_B1 = order_BS.shape, torch.arange(len(order_BS), device=order_BS.device).unsqueeze(1)
        state = inputs_BSI.new_zeros(bsz, layer.cell.states * layer.hidden_size)
        outputs_SBH, _ = layer(_take(inputs_BSI, (rows_B1 * length + order_BS).t()), state)
        return _take(outputs_SBH, order_BS.argsort(dim=1) * bsz + rows_B1)


def _take(vectors: Tensor, places: Tensor) -> Tensor:
    """Vectors (*, I) at places in their flattened order; ``take_along_dim`` takes ten times as long."""
    return vectors.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, places.shape)
