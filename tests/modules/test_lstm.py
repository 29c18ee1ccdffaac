"""LSTM layers by steps against torch's kernel, in every precision."""

import pytest
import torch
from torch import Tensor

from fairseq_tiedemb import products
from fairseq_tiedemb.modules import lstm

T, B, D, H, L = 5, 3, 4, 6, 2


def layers(dtype: torch.dtype) -> list[tuple[Tensor, Tensor, Tensor]]:
    sizes = [D] + [H] * (L - 1)
    shapes = [((4 * H, size), (4 * H, H), (4 * H,)) for size in sizes]
    return [tuple(torch.randn(shape).to(dtype).requires_grad_() for shape in layer) for layer in shapes]


def by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm, "BY_STEPS_FROM", dict.fromkeys((torch.float64, torch.float32, torch.bfloat16), 1))


def test_values_and_gradients_are_those_of_torchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    state = torch.randn(L, B, 2 * H, dtype=torch.float64, requires_grad=True)
    weights = layers(torch.float64)
    given = [inputs, state, *(weight for layer in weights for weight in layer)]
    weight_outputs, weight_last = torch.randn(T, B, H).double(), torch.randn(L, B, 2 * H).double()

    def everything() -> list[Tensor]:
        outputs, last = lstm.fused_lstm(inputs, state, weights)
        loss = (outputs * weight_outputs).sum() + (last * weight_last).sum()
        return [outputs, last, *torch.autograd.grad(loss, given)]

    expected = everything()
    by_steps(monkeypatch)
    monkeypatch.setattr(torch, "lstm", None)
    torch.testing.assert_close(everything(), expected)


@pytest.mark.parametrize("mode", ["weights", "autocast"])
def test_bfloat16_rounds_products_alone(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory c gathers many small steps, which bfloat16 would lose."""
    by_steps(monkeypatch)
    inputs, steps = torch.zeros(400, 1, 1), 400
    # Gates: input and output open, forget open, and a candidate of some 1/1000 a step.
    bias = torch.tensor([20.0, 20.0, 0.001, 20.0])
    weights = [(torch.zeros(4, 1), torch.zeros(4, 1), bias)]
    state = torch.zeros(1, 1, 2)
    if mode == "weights":
        weights = [tuple(weight.bfloat16() for weight in weights[0])]
        outputs, last = lstm.fused_lstm(inputs.bfloat16(), state, weights)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            outputs, last = lstm.fused_lstm(inputs, state, weights)
    assert outputs.dtype == torch.bfloat16
    assert last.dtype == torch.float32
    assert last[0, 0, 1].item() == pytest.approx(0.001 * steps, rel=0.01)


@pytest.mark.parametrize(
    ("way", "size", "dtype", "grad", "expected"),
    [
        ("blas", 999, torch.float32, True, False),
        ("blas", 1000, torch.float32, True, True),
        ("blas", 600, torch.bfloat16, True, True),
        ("blas", 600, torch.bfloat16, False, False),
        ("blas", 1000, torch.bfloat16, False, True),
        ("blas", 1500, torch.float64, True, False),
        ("onednn", 1500, torch.float32, True, False),
        ("onednn", 1000, torch.float32, False, True),
        ("onednn", 600, torch.bfloat16, True, True),
    ],
)
def test_wide_layers_run_by_steps(
    way: str, size: int, dtype: torch.dtype, grad: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "in_use", lambda: way)
    weight = torch.empty(4 * size, size, dtype=dtype)
    with torch.set_grad_enabled(grad):
        assert lstm._is_faster_by_steps(weight, weight) == expected
    assert not lstm._is_faster_by_steps(weight.to("meta"), weight)


@pytest.mark.parametrize(
    ("steps", "dtype", "expected"), [(1, torch.float32, True), (2, torch.float32, False), (1, torch.bfloat16, False)]
)
def test_one_step_of_decoding_runs_by_steps(steps: int, dtype: torch.dtype, expected: bool) -> None:
    inputs, weight = torch.empty(steps, 2, 8, dtype=dtype), torch.empty(32, 8, dtype=dtype)
    assert not lstm._is_faster_by_steps(inputs, weight)
    with torch.no_grad():
        assert lstm._is_faster_by_steps(inputs, weight) == expected
