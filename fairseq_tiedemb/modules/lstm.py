"""A stack of LSTM layers on torch's fused kernels, with one bias per gate."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import products
from .cells import LSTM, without_autocast
from .dropout import dropout
from .recurrence import Recurrence

# Number of units H from which a layer on a CPU is faster as a Recurrence than in torch's kernel, by the dtype of its
# products; see tests/benchmarks/test_recurrent_lm_modules.py. In bfloat16 the kernel's backward pass is slow. The
# kernel is oneDNN's: where oneDNN multiplies everything else in float32, too, it trains faster at every width.
BY_STEPS_FROM = {torch.float32: 1000, torch.bfloat16: 600}
# Input weights (4H, I), recurrent weights (4H, H) and bias (4H,).
Layer = tuple[Tensor, Tensor, Tensor]


class LSTMStack(nn.Module):
    """LSTM layers with dropout between them.

    Runs oneDNN's kernels on a CPU and cuDNN's on a GPU. The kernels add two biases to the gates. The second is a
    constant zero here, because Zaremba et al. (2014) have one. Gates are in torch's order: i, f, candidate, o.
    ``dropout`` is of the outputs of all layers but the last. ``weight_dropout`` is DropConnect, of the recurrent
    weights, with one mask a forward pass.

    Source: Zaremba et al. 2014, section 3 (dropout between layers, not on recurrent connections); Merity et al. 2018,
    section 2 (DropConnect).
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, dropout: float = 0.0, *, weight_dropout: float = 0.0
    ):
        super().__init__()
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.weight_dropout = weight_dropout
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.weight_ih = nn.ParameterList(torch.empty(4 * hidden_size, size) for size in sizes)
        self.weight_hh = nn.ParameterList(torch.empty(4 * hidden_size, hidden_size) for _ in sizes)
        self.bias = nn.ParameterList(torch.empty(4 * hidden_size) for _ in sizes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters uniformly from +-1 / sqrt(H), as torch does."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5)

    def initial_state(self, bsz: int) -> Tensor:
        """A zero state [h, c] (L, B, 2H)."""
        return self.bias[0].new_zeros(len(self.bias), bsz, 2 * self.hidden_size)

    def layers(self) -> list[Layer]:
        """The weights of each layer, with DropConnect in training."""
        weights_hh = [dropout(weight, self.weight_dropout, self.training) for weight in self.weight_hh]
        return list(zip(self.weight_ih, weights_hh, self.bias, strict=True))

    def forward(self, inputs_TBI: Tensor, state_LBK: Tensor) -> tuple[Tensor, Tensor]:
        """Runs all layers from states [h, c] (L, B, 2H); returns the last layer's h (T, B, H) and the last states."""
        layers = self.layers()
        if not self.training or self.dropout == 0.0:
            return fused_lstm(inputs_TBI, state_LBK, layers)
        outputs, states = inputs_TBI, []
        for index, layer in enumerate(layers):
            if index:
                outputs = dropout(outputs, self.dropout)
            outputs, state = fused_lstm(outputs, state_LBK[index : index + 1], [layer])
            states.append(state)
        return outputs, torch.cat(states)


def fused_lstm(inputs_TBI: Tensor, state_LBK: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, Tensor]:
    """Runs LSTM layers in one call of torch's kernel; returns the last layer's h (T, B, H) and the last states.

    States [h, c] are (L, B, 2H). Last states have the given states' dtype. Under autocast the kernel rounds h and c in
    every step, so splitting a sequence does not change the result. Wide layers on a CPU run as ``Recurrence``, which is
    faster. So does a single step without gradients, for which the kernel would arrange the weights anew.
    """
    if _is_faster_by_steps(inputs_TBI, layers[0][1]):
        outputs, states = inputs_TBI, []
        for state_BK, (weight_ih, weight_hh, bias) in zip(state_LBK, layers, strict=True):
            gates_TBG = F.linear(outputs, weight_ih, bias)
            # Under autocast the gates are in half precision, and so are the products of the steps.
            outputs, state_BK = Recurrence.apply(LSTM, gates_TBG, state_BK, weight_hh.to(gates_TBG.dtype))
            states.append(state_BK)
        return outputs, torch.stack(states)
    zero = torch.zeros_like(layers[0][2])
    weights = [weight for layer in layers for weight in (*layer, zero)]
    state = tuple(part.contiguous() for part in state_LBK.chunk(2, 2))
    outputs, hidden, memory = torch.lstm(inputs_TBI, state, weights, *kernel_options(len(layers)))
    return outputs, torch.cat((hidden, memory), 2).to(state_LBK.dtype)


def kernel_options(layers: int) -> tuple[bool, int, float, bool, bool, bool]:
    """Options of torch's kernels: has_biases, num_layers, dropout, train, bidirectional, batch_first."""
    # cuDNN calls it training to prepare a backward pass.
    return (True, layers, 0.0, torch.is_grad_enabled(), False, False)


def _is_faster_by_steps(inputs: Tensor, weight_GH: Tensor) -> bool:
    if inputs.device.type != "cpu":
        return False
    is_autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if is_autocast else weight_GH.dtype
    if is_autocast and dtype == torch.bfloat16 and not products.HAS_BFLOAT16:
        return True  # the kernel ends in an error
    units = BY_STEPS_FROM.get(dtype, torch.inf)
    if not torch.is_grad_enabled():
        if dtype == torch.float32 and len(inputs) == 1:
            return True
        units = max(units, BY_STEPS_FROM[torch.float32])
    elif dtype == torch.float32 and weight_GH.size(1) >= units and not torch.compiler.is_compiling():
        return products.in_use() != "onednn"
    return weight_GH.size(1) >= units


@without_autocast
def lstm_without_autocast(inputs_TBI: Tensor, state_LBK: Tensor, layers: Sequence[Layer]) -> tuple[Tensor, Tensor]:
    """``fused_lstm`` in the dtype of the weights, also under autocast."""
    dtype = layers[0][0].dtype
    return fused_lstm(inputs_TBI.to(dtype), state_LBK.to(dtype), layers)
