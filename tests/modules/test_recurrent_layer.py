"""Cells and recurrent layers against torch's own, and independence of padding."""

import pytest
import torch
from torch import nn

from fairseq_tiedemb.modules.cells import CELLS, tanh
from fairseq_tiedemb.modules.recurrent_layer import BidirectionalLayer, RecurrentLayer

every_cell = pytest.mark.parametrize("cell", CELLS)


def layer_and_oracle(cell: str) -> tuple[RecurrentLayer, nn.Module]:
    layer = RecurrentLayer(3, 4, CELLS[cell]).double()
    oracle = {"gru": nn.GRU, "lstm": nn.LSTM}[cell](3, 4).double()
    with torch.no_grad():
        layer.bias.normal_()
        layer.weight_ih.normal_()
        for name, value in (("weight_ih", layer.weight_ih), ("weight_hh", layer.weight_hh), ("bias_ih", layer.bias)):
            getattr(oracle, f"{name}_l0").copy_(value)
        oracle.bias_hh_l0.zero_()
    return layer, oracle


@every_cell
def test_values_and_gradients_are_torchs(cell: str) -> None:
    layer, oracle = layer_and_oracle(cell)
    inputs = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    state = torch.randn(2, 4 * CELLS[cell].states, dtype=torch.float64, requires_grad=True)
    outputs, last = layer(inputs, state)
    parts = [part.unsqueeze(0) for part in state.chunk(CELLS[cell].states, 1)]
    expected, expected_last = oracle(inputs, tuple(parts) if cell == "lstm" else parts[0])
    torch.testing.assert_close(outputs, expected)
    expected_last = torch.cat(expected_last, 2)[0] if cell == "lstm" else expected_last[0]
    torch.testing.assert_close(last, expected_last)

    weight_outputs, weight_last = torch.randn_like(outputs), torch.randn_like(last)
    found = (outputs * weight_outputs).sum() + (last * weight_last).sum()
    truth = (expected * weight_outputs).sum() + (expected_last * weight_last).sum()
    ours = torch.autograd.grad(found, [inputs, state, layer.weight_ih, layer.weight_hh, layer.bias])
    theirs = torch.autograd.grad(truth, [inputs, state, oracle.weight_ih_l0, oracle.weight_hh_l0, oracle.bias_ih_l0])
    torch.testing.assert_close(ours, theirs)


class OnGpu(torch.Tensor):
    """A CPU's tensor that takes the way of a GPU's."""

    is_cuda = True


@every_cell
def test_the_gpu_path_computes_the_same(cell: str) -> None:
    layer, _ = layer_and_oracle(cell)
    inputs, state = torch.randn(6, 2, 3).double(), torch.randn(2, 4 * CELLS[cell].states).double()
    for ours, theirs in zip(layer(inputs, state), layer(inputs.as_subclass(OnGpu), state), strict=True):
        torch.testing.assert_close(ours, theirs.as_subclass(torch.Tensor))


@every_cell
def test_the_gpu_path_is_prepared_for_gradients_in_evaluation(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN refuses a backward pass that its forward pass was not told of, whatever the mode of the module."""
    layer, _ = layer_and_oracle(cell)
    inputs, state = torch.randn(6, 2, 3).double(), torch.randn(2, 4 * CELLS[cell].states).double()
    kernel, told = getattr(torch, cell), []
    monkeypatch.setattr(torch, cell, lambda *arguments: (told.append(arguments[6]), kernel(*arguments))[1])
    layer.eval()(inputs.as_subclass(OnGpu), state)
    with torch.no_grad():
        layer.train()(inputs.as_subclass(OnGpu), state)
    assert told == [True, False]


@every_cell
def test_autocast_leaves_the_layer_in_the_precision_of_its_weights(cell: str) -> None:
    layer = RecurrentLayer(3, 4, CELLS[cell])
    inputs, state = torch.randn(6, 2, 3), torch.zeros(2, 4 * CELLS[cell].states)
    expected, _ = layer(inputs, state)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = layer(inputs, state)
        outputs.sum().backward()
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, expected, rtol=0.02, atol=0.01)


@every_cell
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_has_no_influence(cell: str, side: str) -> None:
    layer = BidirectionalLayer(3, 4, CELLS[cell]).double()
    short, long = torch.randn(1, 2, 3).double(), torch.randn(1, 5, 3).double()
    padding = torch.full((1, 3, 3), 7.0).double()
    padded = torch.cat((padding, short) if side == "left" else (short, padding), 1)
    is_padding = torch.zeros(2, 5, dtype=torch.bool)
    is_padding[0] = torch.tensor([1, 1, 1, 0, 0] if side == "left" else [0, 0, 1, 1, 1]).bool()
    outputs = layer(torch.cat((padded, long)), is_padding)
    torch.testing.assert_close(outputs[0][~is_padding[0]], layer(short, torch.zeros(1, 2).bool())[0])
    torch.testing.assert_close(outputs[1:], layer(long, torch.zeros(1, 5).bool()))
    assert outputs[0][is_padding[0]].abs().sum() == 0


@every_cell
def test_backward_direction_reads_from_the_right(cell: str) -> None:
    layer = BidirectionalLayer(3, 4, CELLS[cell]).double()
    inputs = torch.randn(1, 5, 3).double()
    layer.backwards.load_state_dict(layer.forwards.state_dict())
    no_padding = torch.zeros(1, 5).bool()
    outputs, flipped = layer(inputs, no_padding), layer(inputs.flip(1), no_padding)
    torch.testing.assert_close(outputs[..., 4:], flipped[..., :4].flip(1))


@every_cell
def test_recurrent_weights_start_orthogonal_gate_by_gate(cell: str) -> None:
    for block in RecurrentLayer(3, 6, CELLS[cell]).weight_hh.chunk(CELLS[cell].gates):
        torch.testing.assert_close(block @ block.t(), torch.eye(6), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-15), (torch.float32, 3e-7), (torch.bfloat16, 0.0)])
def test_the_cells_tanh_is_torchs(dtype: torch.dtype, error: float) -> None:
    x = torch.cat((torch.linspace(-9, 9, 1001), torch.tensor([0.0, 1e-6, torch.inf, -torch.inf]))).to(dtype)
    expected = torch.tanh(x)
    torch.testing.assert_close(tanh(x, torch.empty_like(x)), expected, rtol=0, atol=error)
    torch.testing.assert_close(tanh(x, x), expected, rtol=0, atol=error)
