"""The shortest time of a step on this processor: arithmetic and memory traffic that no way of writing it can avoid.

    limit = floating point operations / rate of a product + bytes / bandwidth of an addition

Both rates are measured in the rounds of the step itself. The product is of 2048 x 2048 matrices in the precision of the
step, in float32 by the fastest of torch's exact libraries, whichever the step uses: as fast as torch multiplies on this
core. The addition is in place, of numbers far more than caches hold, every byte of which is moved. Left out, so that
the limit is one: activations and scores, which may stay in a cache; exponentials and tanh; reading a recurrent weight
again at each time step. A core may move bytes while it multiplies, so the arithmetic alone is shown too: that nothing
can beat.

Beside it stands what torch takes for the step's *own* operations: its products in their shapes, each by the library
that made it, and its nonlinear functions, done alone in the same rounds, and the same bytes. A step that keeps these
operations cannot be faster, however the rest is written.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from fairseq_tiedemb import products

from .interleave import ratio

PRODUCT, ADDITION, OWN = "2048^3 product", "addition in place", "own operations"
SIZE, NUMBERS = 2048, 2**25
# Products, functions that an addition or multiplication cannot replace, and torch's kernels of both.
OPERATIONS = {
    *("mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "mv", "addmv", "addmv_"),
    *("exp", "exp_", "sigmoid", "sigmoid_", "tanh", "tanh_", "softmax", "_softmax", "_log_softmax"),
    *("_linear_pointwise", "_reorder_linear_weight"),  # products with a packed weight
    *("native_layer_norm", "native_layer_norm_backward", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"),
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}


@dataclass(frozen=True)
class Work:
    """What a step has to do at least.

    Attributes:
        flops: of its matrix products, two a multiplication.
        bytes: that it reads and writes.
    """

    flops: int
    bytes: int

    def seconds(self, seconds: Mapping[str, list[float]]) -> tuple[list[float], list[float]]:
        """The limit in every round, and its arithmetic alone; ``seconds`` has those of ``RATES`` too."""
        arithmetic = [self.flops / (2 * SIZE**3) * each for each in seconds[PRODUCT]]
        traffic = [self.bytes / (3 * 4 * NUMBERS) * each for each in seconds[ADDITION]]
        return [sum(both) for both in zip(arithmetic, traffic, strict=True)], arithmetic


class OwnOperations(TorchDispatchMode):
    """Keeps a step's ``OPERATIONS`` with their operands, to do them again, and nothing else."""

    def __init__(self, step: Callable[[], object]):
        super().__init__()
        self._calls: list[tuple[str, partial[object]]] = []
        with self:
            step()

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.overloadpacket.__name__ in OPERATIONS:
            operands = tree_map_only(Tensor, Tensor.detach, (args, kwargs or {}))
            self._calls.append((products.in_use(), partial(function, *operands[0], **operands[1])))
        return function(*args, **kwargs or {})

    @torch.no_grad()
    def again(self) -> None:
        """Does them."""
        with products.multiplying_by(products.in_use()):
            for way, call in self._calls:
                products.use(way)
                call()


def parameter_bytes(parameters: int, *, update: bool) -> int:
    """Bytes that float32 parameters cost a step: read forward and backward, their gradients written.

    Args:
        parameters: how many numbers.
        update: whether the step clips and is plain SGD: then they and their gradients are read, and they are written.
    """
    return 4 * parameters * (6 if update else 3)


@cache
def _operands(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return torch.zeros(shape, dtype=dtype), torch.ones(shape, dtype=dtype)


def _multiply(dtype: torch.dtype) -> None:
    out, factor = _operands(SIZE, SIZE, dtype=dtype)
    rates, errors = products.measure()
    with products.multiplying_by(
        max((way for way in products.WAYS if errors[way] <= products.EXACT), key=rates.__getitem__)
    ):
        torch.mm(factor, factor, out=out)


def _add() -> None:
    total, addend = _operands(NUMBERS)
    total.add_(addend)


def rates(dtype: torch.dtype) -> dict[str, Callable[[], None]]:
    """What measures the rates for a step in a precision, by name."""
    return {PRODUCT: partial(_multiply, dtype), ADDITION: _add}


RATES = rates(torch.float32)


def show_limit(work: Work, seconds: Mapping[str, list[float]], contestant: str, *, steps: int = 1) -> dict[str, str]:
    """Prints and returns what part of a contestant's time the limit is, and its own operations and the bytes.

    Args:
        work: of a step.
        seconds: every round's, of the contestant, of ``RATES`` and of one step's operations, ``OWN``.
        contestant: whose time.
        steps: of the contestant in a round.
    """
    limit, arithmetic = work.seconds(seconds)
    traffic = [both - products for both, products in zip(limit, arithmetic, strict=True)]
    own = [sum(both) for both in zip(seconds[OWN], traffic, strict=True)]
    parts = {"limit": limit, "arithmetic": arithmetic, "own": own}
    shares = {
        part: ratio({part: [steps * each for each in times], **seconds}, part, contestant)
        for part, times in parts.items()
    }
    alone = shares.pop("arithmetic")
    print(f"  limit's time over that of {contestant}: {shares['limit']}; its arithmetic alone {alone}")
    print(f"  own operations and the bytes: {shares['own']}")
    return shares
