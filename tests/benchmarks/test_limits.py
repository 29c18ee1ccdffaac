"""The arithmetic of limits; quick, unlike the benchmarks beside it."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_tiedemb import products

from .limits import ADDITION, NUMBERS, OWN, PRODUCT, RATES, SIZE, OwnOperations, Work, parameter_bytes, show_limit


def test_the_limit_of_a_product_and_an_addition_is_their_time() -> None:
    work = Work(flops=2 * SIZE**3, bytes=12 * NUMBERS)
    both, arithmetic = work.seconds({PRODUCT: [2.0, 3.0], ADDITION: [0.5, 1.0]})
    assert (both, arithmetic) == ([2.5, 4.0], [2.0, 3.0])


def test_what_parameters_move() -> None:
    assert parameter_bytes(10, update=False) == 120  # read twice, a gradient written, 4 bytes each
    assert parameter_bytes(10, update=True) == 240


def test_a_limit_is_of_all_steps_of_a_round(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = {PRODUCT: [1.0, 1.0], ADDITION: [1.0, 1.0], OWN: [2.0, 3.0], "ours": [8.0, 20.0]}
    shares = show_limit(Work(flops=2 * SIZE**3, bytes=12 * NUMBERS), seconds, "ours", steps=2)
    assert shares == {"limit": "0.35 [0.20-0.50]", "own": "0.57 [0.40-0.75]"}
    assert "0.35 [0.20-0.50]; its arithmetic alone 0.17 [0.10-0.25]" in capsys.readouterr().out


def test_own_operations_are_products_and_functions_of_both_passes() -> None:
    numbers = torch.full((3, 3), 0.5, requires_grad=True)
    done: list[str] = []

    def step() -> None:
        (torch.mm(numbers, numbers).tanh() + 1).sum().backward()

    class Listed(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            done.append(function.overloadpacket.__name__)
            return function(*args, **kwargs or {})

    own = OwnOperations(step)
    with Listed():
        own.again()
    assert done == ["mm", "tanh", "mm", "mm"]  # forward; the gradient of the left and of the right factor


@pytest.mark.parametrize(("error", "expected"), [(3e-7, "onednn"), (2e-3, "blas")])
def test_the_product_is_by_the_fastest_exact_library(
    error: float, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []
    monkeypatch.setattr(products, "measure", lambda: ({"blas": 100, "onednn": 110}, {"blas": 3e-7, "onednn": error}))
    monkeypatch.setattr(torch, "mm", lambda *factors, out: used.append(products.in_use()))
    RATES[PRODUCT]()
    assert (used, products.in_use()) == ([expected], "blas")
