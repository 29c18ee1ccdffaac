"""Training steps of the recurrent language models' layers with variational dropout: ours against loops over time.

The *plain loop* is what one writes from the papers: each step computes its products from masked inputs and states, and
autograd gathers the weights' gradients step by step. In the *hoisted loop* the inputs' products of all steps are one,
before the loop, and the gates of a step are computed together. What is asked of ours: 1.2 times the plain loop.
"""

import statistics
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_tiedemb.modules import lstm as lstm_module
from fairseq_tiedemb.modules.dropout import variational_mask
from fairseq_tiedemb.modules.highway import RecurrentHighwayNetwork
from fairseq_tiedemb.modules.variational_lstm import VariationalLSTM

from .conftest import Record
from .interleave import interleave, ratio
from .limits import OWN, RATES, OwnOperations, Work, parameter_bytes, show_limit

BSZ, STEPS = 20, 35


def highway_loop(rhn: RecurrentHighwayNetwork, inputs_TBI: Tensor, *, hoisted: bool) -> Tensor:
    state = rhn.initial_state(BSZ)[0]
    mask_i = variational_mask(rhn.dropout_i, BSZ, inputs_TBI.size(2), like=state)
    mask_h = variational_mask(rhn.dropout_h, BSZ, rhn.hidden_size, like=state)
    outputs = []
    biases = torch.cat((rhn.bias_candidate, rhn.bias_transform), 1)
    shares = F.linear(inputs_TBI * mask_i, rhn.weight_input) if hoisted else inputs_TBI
    for share in shares:
        for layer, weight in enumerate(rhn.weight_recurrent):
            gates = F.linear(state * mask_h, weight, biases[layer])
            if layer == 0:
                gates = gates + (share if hoisted else F.linear(share * mask_i, rhn.weight_input))
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


def hoisted_lstm_loop(lstm: VariationalLSTM, inputs_TBI: Tensor) -> Tensor:
    outputs_TBH = inputs_TBI
    for weight_ih, weight_hh, bias in zip(lstm.weight_ih, lstm.weight_hh, lstm.bias, strict=True):
        hidden = cell = bias.new_zeros(BSZ, lstm.hidden_size)
        masks_i = variational_mask(lstm.dropout_i, 4, BSZ, weight_ih.size(1), like=bias)
        masks_h = variational_mask(lstm.dropout_h, 4, BSZ, lstm.hidden_size, like=bias)
        masked_4NI = (outputs_TBH * masks_i.unsqueeze(1)).flatten(1, 2)
        shares_4NH = torch.baddbmm(bias.view(4, 1, -1), masked_4NI, weight_ih.unflatten(0, (4, -1)).transpose(1, 2))
        weight_4HH = weight_hh.unflatten(0, (4, -1)).transpose(1, 2)
        steps = []
        for share_4BH in shares_4NH.unflatten(1, (-1, BSZ)).unbind(1):
            i, f, g, o = torch.baddbmm(share_4BH, hidden * masks_h, weight_4HH)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            steps.append(hidden)
        outputs_TBH = torch.stack(steps)
    return outputs_TBH


Loop = Callable[[Tensor], Tensor]


def compare(name: str, stack: nn.Module, size: int, loops: dict[str, Loop], flops: int) -> dict[str, list[float]]:
    inputs = torch.randn(STEPS, BSZ, size, requires_grad=True)
    runs = {
        "ours": lambda: stack(inputs, stack.initial_state(BSZ))[0],
        **{each: partial(loop, inputs) for each, loop in loops.items()},
    }

    def step(contestant: str) -> Tensor:
        torch.manual_seed(1)  # the same masks
        loss = runs[contestant]().square().mean()
        for tensor in (inputs, *stack.parameters()):
            tensor.grad = None
        loss.backward()
        return loss.detach()

    found = step("ours")
    gradients = [parameter.grad for parameter in stack.parameters()]
    for each in loops:
        torch.testing.assert_close(found, step(each), rtol=1e-5, atol=0.0)
        for gradient, parameter in zip(gradients, stack.parameters(), strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)

    own = OwnOperations(partial(step, "ours")).again
    seconds = interleave({**{each: partial(step, each) for each in runs}, **RATES, OWN: own}, rounds=5)
    print(f"{name}, {BSZ} rows of {STEPS} words, forward and backward")
    for contestant in runs:
        over = f"  ours over it {ratio(seconds, contestant, 'ours')}" if contestant in loops else ""
        print(f"  {contestant:14s} {BSZ * STEPS / statistics.median(seconds[contestant]):8.0f} words/s{over}")
    parameters = sum(parameter.numel() for parameter in stack.parameters())
    show_limit(Work(flops, parameter_bytes(parameters, update=False)), seconds, "ours")
    return seconds


@pytest.mark.benchmark
@pytest.mark.parametrize(("depth", "size"), [(5, 200), (10, 830)])
def test_recurrent_highway_network(depth: int, size: int, record: Record) -> None:
    rhn = RecurrentHighwayNetwork(size, size, depth, dropout_i=0.75, dropout_h=0.25)
    # The state is zero before the first of all highway layers.
    flops = 6 * BSZ * (STEPS + STEPS * depth - 1) * 2 * size**2
    loops = {
        name: partial(highway_loop, rhn, hoisted=name == "hoisted loop") for name in ("plain loop", "hoisted loop")
    }
    seconds = compare(f"recurrent highway network {depth} x {size}", rhn, size, loops, flops)
    for row, loop in (("highway", "plain loop"), ("highway-hoisted", "hoisted loop")):
        record("speed-lm", f"{row},{depth}x{size}", {"ratio": ratio(seconds, loop, "ours")})


@pytest.mark.benchmark
@pytest.mark.parametrize("size", [200, 650, 1500])
def test_variational_lstm(size: int, record: Record) -> None:
    lstm = VariationalLSTM(size, size, 2, dropout_i=0.5, dropout_h=0.3)
    flops = 6 * BSZ * (2 * STEPS - 1) * 2 * 4 * size**2
    loops = {"plain loop": partial(lstm_loop, lstm), "hoisted loop": partial(hoisted_lstm_loop, lstm)}
    seconds = compare(f"variational LSTM 2 x {size}", lstm, size, loops, flops)
    for row, loop in (("variational", "plain loop"), ("variational-hoisted", "hoisted loop")):
        record("speed-lm", f"{row},{size}", {"ratio": ratio(seconds, loop, "ours")})


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [200, 400, 650, 900, 1500])
def test_lstm_by_steps(size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``BY_STEPS_FROM`` rests on: torch's kernel over our steps, in training and in evaluation."""
    stack = lstm_module.LSTMStack(size, size, 1).to(dtype)
    inputs = torch.randn(STEPS, BSZ, size, dtype=dtype, requires_grad=True)

    def run(units: float, *, train: bool) -> None:
        monkeypatch.setattr(lstm_module, "BY_STEPS_FROM", {torch.float32: units, dtype: units})
        with torch.set_grad_enabled(train):
            outputs, _ = stack(inputs, stack.initial_state(BSZ))
        if train:
            outputs.sum().backward()

    forms = {"torch's kernel": float("inf"), "by steps": 1}
    for train in (True, False):
        seconds = interleave({name: partial(run, units, train=train) for name, units in forms.items()}, rounds=5)
        what = "training" if train else "evaluation"
        print(f"LSTM layer of {size}, {dtype}, {what}: torch's kernel over ours {ratio(seconds, *forms)}")
