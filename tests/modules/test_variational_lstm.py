"""Gal's LSTM against float64 equations with given masks, and against torch's LSTM without masks."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairseq_tiedemb.modules.dropout import variational_mask
from fairseq_tiedemb.modules.lstm import LSTMStack
from fairseq_tiedemb.modules.variational_lstm import VariationalLSTM, masked_lstm
from tests import reference
from tests.models.common import grown

T, B, D, H = 5, 3, 4, 6


def stack(dropout_i: float, dropout_h: float, layers: int = 2) -> VariationalLSTM:
    return grown(VariationalLSTM(D, H, layers, dropout_i=dropout_i, dropout_h=dropout_h).double(), std=1.0)


def inputs_and_state(layers: int = 2) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    return inputs, torch.randn(layers, B, 2 * H, dtype=torch.float64, requires_grad=True)


def masks(inputs: Tensor, p: float = 0.4) -> tuple[Tensor, Tensor]:
    return variational_mask(p, 4, B, D, like=inputs), variational_mask(p, 4, B, H, like=inputs)


def torchs(lstm: VariationalLSTM) -> nn.LSTM:
    oracle = nn.LSTM(D, H, len(lstm.bias)).double()
    with torch.no_grad():
        for layer in range(len(lstm.bias)):
            for name in ("weight_ih", "weight_hh"):
                getattr(oracle, f"{name}_l{layer}").copy_(getattr(lstm, name)[layer])
            getattr(oracle, f"bias_ih_l{layer}").copy_(lstm.bias[layer])
            getattr(oracle, f"bias_hh_l{layer}").zero_()
    return oracle


def test_layer_follows_its_equations() -> None:
    lstm = stack(0.5, 0.5, layers=1)
    inputs, state = inputs_and_state(1)
    mask_i, mask_h = masks(inputs)
    weights = lstm.weight_ih[0], lstm.weight_hh[0], lstm.bias[0]
    outputs, last = masked_lstm(inputs, state[0], weights, mask_i, mask_h)
    arrays = [weight.detach().numpy() for weight in weights]
    for row in range(B):
        expected = state[0, row].detach().numpy()
        for t in range(T):
            x = inputs[t, row].detach().numpy()
            expected = reference.masked_lstm(x, expected, *arrays, mask_i[:, row].numpy(), mask_h[:, row].numpy())
            np.testing.assert_allclose(outputs[t, row].detach(), expected[:H], rtol=1e-10)
        np.testing.assert_allclose(last[row].detach(), expected, rtol=1e-10)


@pytest.mark.parametrize("masks_too", [False, True])
def test_dropped_weights_are_those_of_a_pass(masks_too: bool) -> None:
    """DropConnect: recurrent weights that are 0 or twice as large, the same in all steps; the gradient sees them so."""
    lstm = VariationalLSTM(D, H, 1, dropout_i=0.0, dropout_h=1e-9 * masks_too, weight_dropout=0.5).double()
    plain = LSTMStack(D, H, 1, weight_dropout=0.5).double()
    plain.load_state_dict(lstm.state_dict())
    for module in (lstm, plain):
        inputs, state = inputs_and_state(1)
        torch.manual_seed(3)
        outputs, _ = module(inputs, state)
        outputs.sum().backward()
        torch.manual_seed(3)
        dropped = torch.nn.functional.dropout(module.weight_hh[0].detach(), 0.5)
        assert torch.equal(module.weight_hh[0].grad.eq(0), dropped.eq(0))
        with torch.no_grad():
            assert not torch.equal(module.eval()(inputs, state)[0], outputs), "evaluation has all weights"
            module.weight_hh[0].copy_(dropped)
            torch.testing.assert_close(module(inputs, state)[0], outputs)


@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(steps: int) -> None:
    lstm = stack(0.5, 0.5, layers=1)
    inputs, state = inputs_and_state(1)
    masks_ih = masks(inputs)
    arguments = (inputs[:steps], state[0], lstm.weight_ih[0], lstm.weight_hh[0], lstm.bias[0])
    assert torch.autograd.gradcheck(lambda x, s, *layer: masked_lstm(x, s, layer, *masks_ih), arguments, fast_mode=True)


@pytest.mark.parametrize("training", [True, False])
def test_without_dropout_it_is_torchs_lstm(training: bool) -> None:
    lstm = stack(0.0, 0.0) if training else stack(0.5, 0.5).eval()
    oracle = torchs(lstm)
    inputs, state = inputs_and_state()
    outputs, last = lstm(inputs, state)
    expected, expected_last = oracle(inputs, tuple(part.contiguous() for part in state.chunk(2, 2)))
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last, torch.cat(expected_last, 2))


def test_stack_chains_masked_layers() -> None:
    lstm = stack(0.4, 0.2)
    inputs, state = inputs_and_state()
    torch.manual_seed(7)
    outputs, last = lstm(inputs, state)
    torch.manual_seed(7)
    expected = inputs
    for layer, weights in enumerate(zip(lstm.weight_ih, lstm.weight_hh, lstm.bias, strict=True)):
        mask_i = variational_mask(0.4, 4, B, expected.size(2), like=inputs)
        mask_h = variational_mask(0.2, 4, B, H, like=inputs)
        expected, expected_last = masked_lstm(expected, state[layer], weights, mask_i, mask_h)
        torch.testing.assert_close(last[layer], expected_last)
    torch.testing.assert_close(outputs, expected)
    assert not torch.equal(lstm(inputs, state)[0], outputs)


@pytest.mark.parametrize(("dropout_i", "dropout_h", "without"), [(0.6, 0.0, "weight_ih"), (0.0, 0.6, "weight_hh")])
def test_one_probability_alone_drops_its_side_alone(dropout_i: float, dropout_h: float, without: str) -> None:
    lstm = stack(dropout_i, dropout_h)
    inputs, state = inputs_and_state()
    assert not torch.allclose(lstm.train()(inputs, state)[0], lstm.eval()(inputs, state)[0])
    with torch.no_grad():
        for weight in getattr(lstm, without):
            weight.zero_()
    torch.testing.assert_close(lstm.train()(inputs, state), lstm.eval()(inputs, state))


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [True, False])
def test_a_gpu_computes_the_same(masked: bool) -> None:
    lstm = stack(0.5, 0.5, layers=1)
    inputs, state = inputs_and_state(1)
    mask_i, mask_h = masks(inputs)
    found = []
    for device in ("cpu", "cuda"):
        lstm = lstm.to(device)
        x, s = (tensor.detach().to(device) for tensor in (inputs, state))
        if masked:
            weights = lstm.weight_ih[0], lstm.weight_hh[0], lstm.bias[0]
            outputs, last = masked_lstm(x, s[0], weights, mask_i.to(device), mask_h.to(device))
        else:
            outputs, last = lstm.eval()(x, s)
        gradients = torch.autograd.grad(outputs.square().sum() + last.sum(), list(lstm.parameters()))
        found.append([tensor.cpu() for tensor in (outputs, last, *gradients)])
    torch.testing.assert_close(found[1], found[0])
