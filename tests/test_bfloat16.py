"""Processors whose products in bfloat16 are slow, or missing, compute them in float32, with the results of others."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from fairseq.models import BaseFairseqModel
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_tiedemb import bfloat16, products
from fairseq_tiedemb.modules.lstm import LSTMStack

from .conftest import InProcess
from .test_resume import LM

# A product of two matrices, or one in each of three places, and what is added to it.
SHAPES = {2: ((7, 33), (33, 5), (5,)), 3: ((3, 7, 33), (3, 33, 5), (3, 1, 5))}
PRODUCTS = {"mm": 2, "addmm": 2, "bmm": 3, "baddbmm": 3}


@pytest.fixture
def without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without products in bfloat16, and no GPU."""
    monkeypatch.setattr(products, "HAS_BFLOAT16", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def operands(name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """What the operator takes, in its order."""
    *factors, added = (torch.randn(shape, dtype=torch.float64).to(dtype) for shape in SHAPES[PRODUCTS[name]])
    return [added, *factors] if "add" in name else factors


def near(result: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a result is the exact number, rounded once to bfloat16, which keeps 8 bits, and summed in float32."""
    return bool(((result.double() - exact).abs() <= exact.abs() / 256 + 1e-5).all())


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_rounded_once(name: str, without_products: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = operands(name, torch.bfloat16)
    factors: dict[str, Any] = {"beta": 0.5, "alpha": 3} if "add" in name else {}
    exact = getattr(torch, name)(*(operand.double() for operand in given), **factors)
    multiply = Mock(side_effect=bfloat16._product)
    monkeypatch.setattr(bfloat16, "_product", multiply)
    assert bfloat16.multiply_in_float32()
    result = getattr(torch, name)(*given, **factors)
    assert result.dtype == torch.bfloat16
    assert near(result, exact)
    for out in (torch.empty_like(result), result.new_empty(0), result.new_empty(3, 9, 7).transpose(0, 2)[:0]):
        assert torch.equal(getattr(torch, name)(*given, **factors, out=out), result)
        assert torch.equal(out, result)
    assert multiply.call_count == 4


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_other_types_are_multiplied_as_before(name: str, dtype: torch.dtype, without_products: None) -> None:
    given = [3 * operand for operand in operands(name, torch.float64)]
    before = getattr(torch, name)(*(operand.to(dtype) for operand in given))
    assert bfloat16.multiply_in_float32()
    after = getattr(torch, name)(*(operand.to(dtype) for operand in given))
    assert after.dtype == dtype
    assert torch.equal(after, before)


def test_what_is_not_added_may_be_nan(without_products: None) -> None:
    assert bfloat16.multiply_in_float32()
    added, left, right = operands("addmm", torch.bfloat16)
    assert torch.equal(torch.addmm(added * torch.nan, left, right, beta=0), left @ right)


def test_what_torch_refuses_is_refused_as_before(without_products: None) -> None:
    left, right = (operand.to(torch.bfloat16) for operand in (torch.ones(7, 33), torch.ones(33, 5)))
    sums, batch = left @ right, torch.ones(2, 7, 7).bfloat16()
    refused: list[Callable[[], Any]] = [
        lambda: torch.mm(left, left),
        lambda: torch.mm(left, right.float()),
        lambda: torch.mm(left.float(), right),
        lambda: torch.mm(batch, batch),
        lambda: torch.bmm(left, right),
        lambda: torch.addmm(sums.float(), left, right),
        lambda: torch.mm(left, right, out=torch.empty(7, 5)),
    ]
    for _ in range(2):  # by torch, and by ours
        for multiply in refused:
            with pytest.raises((RuntimeError, IndexError), match="must|shapes|dtype|range"):
                multiply()
        assert bfloat16.multiply_in_float32()


class Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_layers_learn(without_products: None) -> None:
    """Layers and their gradients multiply by these operators, and attention by no other."""
    assert bfloat16.multiply_in_float32()
    torch.manual_seed(1)
    layer, recurrent = torch.nn.Linear(8, 6), torch.nn.LSTM(6, 6)
    inputs = torch.randn(5, 3, 8)
    gradients = []
    for dtype in (torch.float64, torch.bfloat16):
        layer.to(dtype).zero_grad()
        states = recurrent.to(dtype)(layer(inputs.to(dtype)))[0].unsqueeze(0)
        with Operators() as operators:
            functional.scaled_dot_product_attention(states, states, states).square().sum().backward()
        assert operators.names & PRODUCTS.keys()
        assert not any("flash" in name for name in operators.names)
        assert layer.weight.grad is not None
        gradients.append(layer.weight.grad.double())
    assert (gradients[1] - gradients[0]).norm() < 0.03 * gradients[0].norm()


def test_gpus_multiply_themselves(without_products: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not bfloat16.multiply_in_float32()
    assert not bfloat16._operators


@pytest.mark.parametrize(("times", "is_slow"), [((3.0, 2.0), True), ((2.0, 2.0), False), ((1.0, 2.0), False)])
def test_processors_with_fast_products_use_them(
    times: tuple[float, float], is_slow: bool, without_products: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = dict(zip((torch.bfloat16, torch.float32), times, strict=True))
    rounds = iter([1.0] + [9.0, 9.0] * 99)  # other work on the machine, in all rounds but the first

    def timeit(multiply: Any, number: int) -> float:
        assert torch.get_num_threads() == 1
        dtype = multiply().dtype
        return seconds[dtype] * (next(rounds) if dtype == torch.bfloat16 else 1)

    monkeypatch.setattr(products, "HAS_BFLOAT16", True)
    monkeypatch.setattr(bfloat16, "is_slow", bfloat16.is_slow.__wrapped__)  # which measures each time
    monkeypatch.setattr(bfloat16.timeit, "timeit", timeit)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert bfloat16.multiply_in_float32() == bool(bfloat16._operators) == is_slow
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_choice_is_the_same_again() -> None:
    assert len({bfloat16.is_slow.__wrapped__() for _ in range(10)}) == 1


@pytest.mark.parametrize(
    ("shape", "is_large"),
    [((128, 130, 140), True), ((127, 130, 140), False), ((130, 127, 140), False), ((130, 140, 127), False)],
)
@pytest.mark.parametrize("name", ["mm", "addmm"])
def test_slow_products_are_replaced_if_they_are_large(
    name: str, shape: tuple[int, int, int], is_large: bool, without_products: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "HAS_BFLOAT16", True)
    monkeypatch.setattr(bfloat16, "is_slow", lambda: True)
    product = Mock(side_effect=bfloat16._product)
    monkeypatch.setattr(bfloat16, "_product", product)
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner).bfloat16(), torch.randn(inner, columns).bfloat16()
    given = [torch.randn(columns).bfloat16(), left, right] if name == "addmm" else [left, right]
    multiply = getattr(torch, name)
    torchs, exact = multiply(*given), multiply(*(operand.double() for operand in given))
    assert bfloat16.multiply_in_float32()
    addmm_, dtypes = torch.Tensor.addmm_, []

    def multiplied(total: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        dtypes.append(total.dtype)
        return addmm_(total, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "addmm_", multiplied)
    result = multiply(*given)
    assert dtypes == [torch.float32 if is_large else torch.bfloat16]
    assert torch.equal(result, torchs) or is_large
    assert near(result, exact)
    torch.bmm(left[None], right[None])
    torch.baddbmm(result[None], left[None], right[None])
    assert product.call_count == 1  # batches are torch's
    with Operators() as operators:
        functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 8, 8).bfloat16())
    assert "_scaled_dot_product_flash_attention_for_cpu" in operators.names


def test_under_autocast_an_lstm_runs(without_products: None) -> None:
    """torch's kernel, the faster one, ends in an error on such a processor."""
    stack = LSTMStack(6, 6, 2)
    inputs, state = torch.randn(5, 3, 6), stack.initial_state(3)
    with Operators() as operators, torch.autocast("cpu", torch.bfloat16):
        stack(inputs, state)
    assert "mkldnn_rnn_layer" not in operators.names
    assert "sigmoid_" in operators.names


def test_a_training_says_so(
    without_products: None, train: InProcess, lm_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flags = (*LM, "--max-update", 2, "--no-save", "--disable-validation")
    train(lm_data, *flags)
    assert not bfloat16._operators
    assert "--bf16: this processor" not in caplog.text
    for _ in range(2):
        train(lm_data, *flags, "--bf16")
        assert caplog.text.count("--bf16: this processor is faster in float32. Large matrices") == 1
        caplog.clear()


@pytest.mark.parametrize("flag", [True, False])
def test_searches_do_so(flag: bool, without_products: None) -> None:
    model = BaseFairseqModel()
    settings = SimpleNamespace(
        common=SimpleNamespace(bf16=flag), common_eval=SimpleNamespace(path="model.pt"), generation=None
    )
    model.prepare_for_inference_(settings)
    assert bool(bfloat16._operators) == flag
