"""The recurrent highway network against float64 equations with given masks, and its sizes against the papers'."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fairseq_tiedemb.modules.dropout import variational_mask
from fairseq_tiedemb.modules.highway import RecurrentHighwayNetwork, highway
from tests import reference
from tests.models.common import grown

T, B, D, H = 5, 3, 4, 6


def network(depth: int = 3, dropout_i: float = 0.5, dropout_h: float = 0.5) -> RecurrentHighwayNetwork:
    return grown(RecurrentHighwayNetwork(D, H, depth, dropout_i=dropout_i, dropout_h=dropout_h).double(), std=1.0)


def arguments(depth: int = 3) -> list[Tensor]:
    """Inputs, initial state, and the parameters of ``highway``."""
    shapes = (T, B, D), (B, H), (2 * H, D), (depth, 2 * H, H), (depth, 2 * H)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def masks(masked: bool = True) -> tuple[Tensor, Tensor] | tuple[None, None]:
    like = torch.zeros(1).double()
    return (variational_mask(0.4, B, D, like=like), variational_mask(0.4, B, H, like=like)) if masked else (None, None)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
def test_network_follows_its_equations(depth: int, masked: bool) -> None:
    inputs, state, *weights = arguments(depth)
    mask_i, mask_h = masks(masked)
    outputs = highway(inputs, state, *weights, mask_i, mask_h)
    arrays = [weight.detach().numpy() for weight in weights]
    for row in range(B):
        expected = state[row].detach().numpy()
        row_masks = [mask[row].numpy() for mask in (mask_i, mask_h)] if masked else [np.ones(D), np.ones(H)]
        for t in range(T):
            expected = reference.recurrent_highway(inputs[t, row].detach().numpy(), expected, *arrays, *row_masks)
            np.testing.assert_allclose(outputs[t, row].detach(), expected, rtol=1e-10)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradcheck(steps: int, depth: int, masked: bool) -> None:
    inputs, *others = arguments(depth)
    row_masks = masks(masked)
    assert torch.autograd.gradcheck(lambda *args: highway(*args, *row_masks), (inputs[:steps], *others), fast_mode=True)


def test_module_draws_one_mask_of_inputs_and_one_of_states() -> None:
    rhn = network(dropout_i=0.4, dropout_h=0.2)
    inputs, state, *_ = arguments()
    torch.manual_seed(7)
    outputs, last = rhn(inputs, state.unsqueeze(0))
    torch.manual_seed(7)
    row_masks = variational_mask(0.4, B, D, like=inputs), variational_mask(0.2, B, H, like=inputs)
    bias = torch.cat((rhn.bias_candidate, rhn.bias_transform), 1)
    expected = highway(inputs, state, rhn.weight_input, rhn.weight_recurrent, bias, *row_masks)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(last, expected[-1:])
    assert not torch.equal(rhn(inputs, state.unsqueeze(0))[0], outputs)


def test_evaluation_and_probability_zero_drop_nothing() -> None:
    rhn = network(dropout_i=0.0, dropout_h=0.0)
    inputs, state, *_ = arguments()
    bias = torch.cat((rhn.bias_candidate, rhn.bias_transform), 1)
    expected = highway(inputs, state, rhn.weight_input, rhn.weight_recurrent, bias, None, None)
    torch.testing.assert_close(rhn(inputs, state.unsqueeze(0))[0], expected)
    rhn.dropout_i = rhn.dropout_h = 0.5
    torch.testing.assert_close(rhn.eval()(inputs, state.unsqueeze(0))[0], expected)


@pytest.mark.parametrize("bias", [-2.0, -4.0])
def test_transform_gates_start_closed(bias: float) -> None:
    rhn = RecurrentHighwayNetwork(D, H, 2, dropout_i=0.0, dropout_h=0.0, transform_bias=bias)
    assert (rhn.bias_transform == bias).all()
    assert (rhn.bias_candidate == 0).all()
    with torch.no_grad():
        rhn.weight_input.zero_()
        rhn.weight_recurrent.zero_()
    _, last = rhn(torch.randn(1, B, D), torch.ones(1, B, H))
    kept = 1 - torch.sigmoid(torch.tensor(bias))
    torch.testing.assert_close(last, (kept**2).expand(1, B, H))  # the candidates are zero


def test_state_to_carry_holds_no_other_states() -> None:
    _, last = network()(torch.randn(T, B, D).double(), torch.zeros(1, B, H).double())
    assert last.untyped_storage().nbytes() == B * H * 8


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [True, False])
def test_a_gpu_computes_the_same(masked: bool) -> None:
    tensors, row_masks = arguments(), masks(masked)
    found = []
    for device in ("cpu", "cuda"):
        moved = [tensor.detach().to(device).requires_grad_() for tensor in tensors]
        outputs = highway(*moved, *(mask if mask is None else mask.to(device) for mask in row_masks))
        gradients = torch.autograd.grad(outputs.square().sum(), moved)
        found.append([tensor.cpu() for tensor in (outputs, *gradients)])
    torch.testing.assert_close(found[1], found[0])
