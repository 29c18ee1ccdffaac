"""Training steps of the recurrent language models' layers with variational dropout: ours against a plain loop.

The plain loop is what one writes from the papers: each step computes its products from masked inputs and states, and
autograd gathers the weights' gradients step by step. What is asked of ours: 1.2 times the loop.
"""

import statistics
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_tiedemb.modules.dropout import variational_mask
from fairseq_tiedemb.modules.highway import RecurrentHighwayNetwork
from fairseq_tiedemb.modules.variational_lstm import VariationalLSTM

from .interleave import interleave, ratio

BSZ, STEPS = 20, 35


def highway_loop(rhn: RecurrentHighwayNetwork, inputs_TBI: Tensor) -> Tensor:
    state = rhn.initial_state(BSZ)[0]
    mask_i = variational_mask(rhn.dropout_i, BSZ, inputs_TBI.size(2), like=state)
    mask_h = variational_mask(rhn.dropout_h, BSZ, rhn.hidden_size, like=state)
    outputs = []
    for inputs in inputs_TBI:
        for layer, weight in enumerate(rhn.weight_recurrent):
            bias = torch.cat((rhn.bias_candidate[layer], rhn.bias_transform[layer]))
            gates = F.linear(state * mask_h, weight, bias)
            if layer == 0:
                gates = gates + F.linear(inputs * mask_i, rhn.weight_input)
            candidate, transform = gates.chunk(2, 1)
            state = state + (candidate.tanh() - state) * transform.sigmoid()
        outputs.append(state)
    return torch.stack(outputs)


def lstm_loop(lstm: VariationalLSTM, inputs_TBI: Tensor) -> Tensor:
    outputs = inputs_TBI
    for weight_ih, weight_hh, bias in zip(lstm.weight_ih, lstm.weight_hh, lstm.bias, strict=True):
        hidden = cell = bias.new_zeros(BSZ, lstm.hidden_size)
        masks_i = variational_mask(lstm.dropout_i, 4, BSZ, weight_ih.size(1), like=bias)
        masks_h = variational_mask(lstm.dropout_h, 4, BSZ, lstm.hidden_size, like=bias)
        by_gate = list(zip(masks_i, masks_h, weight_ih.chunk(4), weight_hh.chunk(4), bias.chunk(4), strict=True))
        steps = []
        for inputs in outputs:
            i, f, g, o = (
                F.linear(inputs * m_i, w_i, b) + F.linear(hidden * m_h, w_h) for m_i, m_h, w_i, w_h, b in by_gate
            )
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            steps.append(hidden)
        outputs = torch.stack(steps)
    return outputs


def compare(name: str, stack: nn.Module, size: int, loop: Callable[[Tensor], Tensor], flops: float) -> None:
    inputs = torch.randn(STEPS, BSZ, size, requires_grad=True)
    runs = {"ours": lambda: stack(inputs, stack.initial_state(BSZ))[0], "plain loop": lambda: loop(inputs)}

    def step(contestant: str) -> Tensor:
        torch.manual_seed(1)  # the same masks
        loss = runs[contestant]().square().mean()
        for tensor in (inputs, *stack.parameters()):
            tensor.grad = None
        loss.backward()
        return loss.detach()

    found = step("ours")
    gradients = [parameter.grad for parameter in stack.parameters()]
    torch.testing.assert_close(found, step("plain loop"), rtol=1e-5, atol=0.0)
    for gradient, parameter in zip(gradients, stack.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)

    seconds = interleave({"ours": lambda: step("ours"), "plain loop": lambda: step("plain loop")}, rounds=5)
    print(f"\n{name}, {BSZ} rows of {STEPS} words, forward and backward")
    for contestant, times in seconds.items():
        median = statistics.median(times)
        print(f"  {contestant:12s} {BSZ * STEPS / median:8.0f} words/s {flops / median / 1e9:6.1f} GFLOP/s")
    print(f"  ours over the plain loop  {ratio(seconds, 'plain loop', 'ours')}")


@pytest.mark.benchmark
@pytest.mark.parametrize(("depth", "size"), [(5, 200), (10, 830)])
def test_recurrent_highway_network(depth: int, size: int) -> None:
    rhn = RecurrentHighwayNetwork(size, size, depth, dropout_i=0.75, dropout_h=0.25)
    flops = 3 * BSZ * STEPS * 2 * (depth + 1) * 2 * size**2
    compare(f"recurrent highway network {depth} x {size}", rhn, size, lambda x: highway_loop(rhn, x), flops)


@pytest.mark.benchmark
@pytest.mark.parametrize("size", [200, 650, 1500])
def test_variational_lstm(size: int) -> None:
    lstm = VariationalLSTM(size, size, 2, dropout_i=0.5, dropout_h=0.3)
    flops = 3 * BSZ * STEPS * 2 * 2 * 8 * size**2
    compare(f"variational LSTM 2 x {size}", lstm, size, lambda x: lstm_loop(lstm, x), flops)
