"""What Gal's LSTM and the recurrent highway network have in common: masks, carried states, precisions."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_tiedemb.modules.highway import RecurrentHighwayNetwork
from fairseq_tiedemb.modules.variational_lstm import VariationalLSTM
from tests.models.common import grown

T, B, D, H = 5, 3, 4, 6
NETWORKS: dict[str, Callable[..., Any]] = {
    "highway": lambda **dropout: RecurrentHighwayNetwork(D, H, 3, **dropout),
    "LSTM": lambda **dropout: VariationalLSTM(D, H, 2, **dropout),
}
every_network = pytest.mark.parametrize("name", NETWORKS)
either_mode = pytest.mark.parametrize("training", [True, False])


def network(name: str, training: bool, *, as_it_begins: bool = False) -> Any:
    made = NETWORKS[name](dropout_i=0.5, dropout_h=0.5).double().train(training)
    return made if as_it_begins else grown(made, std=1.0)


def inputs_and_state(made: Any) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    return inputs, torch.randn_like(made.initial_state(B)).requires_grad_()


def run(made: Any, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and last state with the same masks each time."""
    torch.manual_seed(3)
    return made(inputs, state)


@every_network
@either_mode
def test_two_halves_are_the_whole(name: str, training: bool) -> None:
    made = network(name, training)
    inputs, state = inputs_and_state(made)
    whole = run(made, inputs, state)
    first, middle = run(made, inputs[:2], state)
    second, last = run(made, inputs[2:], middle)
    halves = torch.cat((first, second)), last
    torch.testing.assert_close(halves, whole)
    gradients = (torch.autograd.grad(each[0].sum(), [inputs, state]) for each in (halves, whole))
    torch.testing.assert_close(*gradients)


@every_network
@either_mode
def test_batch_rows_are_independent(name: str, training: bool) -> None:
    made = network(name, training)
    inputs, state = inputs_and_state(made)
    changed = inputs.detach().clone()
    changed[:, 1] = 9.0
    outputs, others = run(made, inputs, state)[0], run(made, changed, state)[0]
    torch.testing.assert_close(outputs[:, [0, 2]], others[:, [0, 2]])
    assert not torch.equal(outputs[:, 1], others[:, 1])


@every_network
@either_mode
def test_autocast_leaves_the_recurrence_in_the_precision_of_its_weights(name: str, training: bool) -> None:
    made, inputs = network(name, training).float(), torch.randn(T, B, D)
    expected = run(made, inputs, made.initial_state(B))[0]
    with torch.autocast("cpu", torch.bfloat16):
        outputs = run(made, inputs, made.initial_state(B))[0]
        outputs.sum().backward()
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(outputs, expected, rtol=0.05, atol=0.05)  # products of inputs in bfloat16


@every_network
@either_mode
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name: str, dtype: torch.dtype, training: bool) -> None:
    made = network(name, training, as_it_begins=True).to(dtype)
    inputs = torch.randn(T, B, D).to(dtype)

    def computed(inputs: Tensor) -> tuple[Tensor, ...]:
        outputs, last = run(made, inputs, made.initial_state(B))
        assert outputs.dtype == last.dtype == inputs.dtype
        weights = [each for key, each in made.named_parameters() if "weight" in key]
        return tuple(each.double() for each in (outputs, *torch.autograd.grad(outputs.sum(), weights)))

    found = computed(inputs)
    made.double()
    # bfloat16 has 8 bits
    torch.testing.assert_close(found, computed(inputs.double()), rtol=0.05, atol=0.05)


@every_network
@either_mode
def test_one_row_and_one_step(name: str, training: bool) -> None:
    made = network(name, training)
    outputs, last = made(torch.randn(1, 1, D).double(), made.initial_state(1))
    assert outputs.shape == (1, 1, H)
    assert last.shape == made.initial_state(1).shape
    torch.testing.assert_close(last[-1, :, :H], outputs[0])
