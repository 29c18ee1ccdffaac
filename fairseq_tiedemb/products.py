"""How torch multiplies matrices on the CPU: by which library, in which precision, by packed weights, how many rows.

torch sends products in float32 to its BLAS. In the wheels for x86 that is MKL, which takes slow kernels on processors
that are not Intel's. oneDNN, in the same wheels, gets them only where torch may round them to bfloat16. oneDNN rounds
on processors with AMX; on others it multiplies in float32 all the same. So both are measured, speed and exactness.
"""

import contextlib
import functools
import math
import os
import platform
import threading
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .precision import exact

functional: Any = torch.nn.functional
linear = functional.linear  # which trainings replace by ``even_linear``
attention = functional.scaled_dot_product_attention  # which ``use`` replaces by ``short_attention``
X86 = ("x86_64", "AMD64")
# A torch without oneDNN lacks the operator; bool() is False.
HAS_BFLOAT16 = platform.machine() not in X86 or getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)()
WAYS = ("blas", "onednn")
VARIABLE = "FAIRSEQ_TIEDEMB_PRODUCTS"
# Relative error up to which a result counts as float32's: float32 has some 3e-7, TF32 2e-4, bfloat16 2e-3.
EXACT = 2e-6
# How much faster oneDNN must be. Equal libraries differ by less in this measurement: every run chooses the same.
GAIN = 1.25
ROUNDS = 5
ROWS, WIDTH, UNITS = 64, 256, 128
WORTH_PACKING = 12  # products with one weight
SHORT = 512  # words; beyond, torch's attention is as fast, and needs less memory
# oneDNN makes a kernel for each number of rows that it has not seen, which takes as long as several products. In
# trainings in these dtypes, a product of at least the first number of rows has a multiple of the second.
EVEN_ROWS, EVEN = {torch.bfloat16}, ((512, 64), (64, 16))


@dataclass(frozen=True)
class Products:
    """The library that multiplies float32 matrices on the CPU, and what was measured."""

    way: str  # `blas`, torch's default, or `onednn`
    rates: dict[str, float] = field(default_factory=dict)  # GFLOP/s of each way in one thread; empty if not measured
    # Of each way, the largest relative error of a product or an LSTM step, against float64.
    errors: dict[str, float] = field(default_factory=dict)
    by_hand: bool = False  # whether the user has chosen

    def __str__(self) -> str:
        measured = (f"{way} {self.rates[way]:.0f} GFLOP/s, error {self.errors[way]:.0e}" for way in self.rates)
        return f"{self.way} ({'; '.join(measured) or 'not measured'})"


def fast_products(way: str | None = None) -> Products:
    """Let torch multiply float32 matrices on the CPU by the faster of its libraries that is exact on this processor.

    The choice holds for this process. Beside oneDNN its ``F.scaled_dot_product_attention`` is ``short_attention``,
    which ``torch.jit.script`` does not take. Without a choice torch uses its BLAS. Measuring takes some 30 ms, once,
    and leaves random numbers as they are. Where torch sees a GPU, which its switch may concern, nothing is done.

    Args:
        way: `auto`; `blas` or `onednn` without regard to the measurement; or None, for the environment variable
            FAIRSEQ_TIEDEMB_PRODUCTS, whose default is `auto`.

    Returns:
        the library in use, and what was measured.

    Raises:
        ValueError: for another way.
    """
    chosen = way or os.environ.get(VARIABLE) or "auto"
    if chosen not in ("auto", *WAYS):
        needs, got = "auto, blas or onednn", chosen
        raise ValueError(f"{VARIABLE if way is None else 'way'}: needs {needs}; got {got}. Use auto, which measures.")
    by_hand = chosen != "auto"
    if not by_hand and torch.cuda.is_available():
        return Products(in_use())
    rates, errors = ({}, {}) if chosen == "blas" else measure()
    if not by_hand:
        is_better = errors["onednn"] <= EXACT and rates["onednn"] >= GAIN * rates["blas"]
        chosen = "onednn" if is_better else "blas"
    use(chosen)
    return Products(chosen, rates, errors, by_hand)


def in_use() -> str:
    """The library that multiplies float32 matrices on the CPU: `blas` or `onednn`."""
    read, _, words = _switch()
    return "onednn" if read() == words["onednn"] else "blas"


def use(way: str) -> None:
    """Let torch multiply float32 matrices on the CPU by `blas` or `onednn`, without measuring anything."""
    _, write, words = _switch()
    if way != in_use():  # else the switch keeps its word, which may be torch's default
        write(words[way])
    if way == "onednn":
        functional.scaled_dot_product_attention = short_attention
    elif functional.scaled_dot_product_attention is short_attention:
        functional.scaled_dot_product_attention = attention


@contextlib.contextmanager
def multiplying_by(way: str) -> Iterator[None]:
    """Lets torch multiply float32 matrices on the CPU by `blas` or `onednn` here, in all threads."""
    read, write, _ = _switch()
    word, attend = read(), functional.scaled_dot_product_attention
    use(way)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = attend
        if read() != word:
            write(word)


def of_vectors(operand: torch.Tensor) -> contextlib.AbstractContextManager[None]:
    """Sends products to BLAS here: of a matrix and a vector, for which oneDNN takes up to twelve times as long.

    The switch is the process's, so only its main thread does so, and only on a CPU.
    """
    if torch.compiler.is_compiling() or operand.device.type != "cpu":
        return contextlib.nullcontext()
    is_main = threading.current_thread() is threading.main_thread()
    return multiplying_by("blas") if is_main else contextlib.nullcontext()


@functools.cache
def measure() -> tuple[dict[str, float], dict[str, float]]:
    """Measure each way once per process, in one thread: GFLOP/s, and the largest relative error.

    All ways together take 12 rounds of 50 MFLOP, and 50 MFLOP of LSTM.
    """
    errors, seconds = {}, dict.fromkeys(WAYS, math.inf)
    with one_thread():
        operands = _operands()
        exact = _results(*(operand.double() for operand in operands))
        for way in WAYS:
            with multiplying_by(way):
                pairs = zip(_results(*operands), exact, strict=True)  # this also prepares the libraries
            errors[way] = max(((one - other).norm() / other.norm()).item() for one, other in pairs)
        for _ in range(ROUNDS):
            for way in WAYS:
                with multiplying_by(way):
                    seconds[way] = min(seconds[way], timeit.timeit(functools.partial(_products, *operands), number=1))
    operations = 3 * 2 * ROWS * WIDTH * 4 * UNITS
    return {way: operations / seconds[way] / 1e9 for way in WAYS}, errors


def packed(weight: torch.Tensor, uses: float = math.inf) -> torch.Tensor:
    """A weight (O, I) as oneDNN wants it, for ``product`` alone and without gradients; unchanged where that is no gain.

    Products of few rows take 0.6 to 0.9 of the time, in float32 and bfloat16; packing, as much as two to five of them.
    ``uses`` is the number of products to come.
    """
    cpu, dtype = torch.ops.mkldnn, weight.dtype
    if uses < WORTH_PACKING or weight.is_mkldnn or weight.device.type != "cpu" or platform.machine() not in X86:
        return weight
    is_known = dtype == torch.float32 or (dtype == torch.bfloat16 and HAS_BFLOAT16)
    return cpu._reorder_linear_weight(weight.detach()) if is_known and torch.backends.mkldnn.is_available() else weight


def product(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Inputs (N, I) through a linear layer (N, O), whose weight may be packed."""
    if weight.is_mkldnn:
        return torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return functional.linear(inputs, weight, bias)


def short_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> torch.Tensor:
    """Does ``F.scaled_dot_product_attention``, of short texts in float32 on a CPU by products of all sentences at once.

    torch's kernel multiplies head by head, for which oneDNN takes up to fifteen times as long.
    """
    given: Any = (query, key, value, attn_mask, dropout_p, is_causal)
    is_usual = query.device.type == "cpu" and query.dtype == torch.float32 and not query.is_nested
    is_usual = is_usual and (attn_mask is None or (attn_mask.dtype != torch.bool and not is_causal))
    is_usual = is_usual and not (torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))
    if not is_usual or max(query.size(-2), key.size(-2)) > SHORT:
        return attention(*given, **options)
    return torch._scaled_dot_product_attention_math(*given, **options)[0]


def row_multiple(operand: torch.Tensor, rows: int) -> int:
    """What a product's number of rows is a multiple of: more than 1 for many rows in bfloat16 on a CPU."""
    if operand.device.type != "cpu" or operand.dtype not in EVEN_ROWS or torch.compiler.is_compiling():
        return 1
    return next((multiple for fewest, multiple in EVEN if rows >= fewest), 1)


def fill(rows_ND: torch.Tensor, multiple: int) -> torch.Tensor:
    """The rows, with rows of zeros after them up to a multiple. A product with a row of zeros is zero."""
    missing = -len(rows_ND) % multiple
    return torch.cat((rows_ND, rows_ND.new_zeros(missing, rows_ND.size(1)))) if missing else rows_ND


def over_rows(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The product (O, I) over all rows of ``left`` (*, O) and ``right`` (*, I) that is a weight's gradient."""
    left_NO, right_NI = left.flatten(0, -2), right.flatten(0, -2)
    multiple = row_multiple(left_NO, len(left_NO))
    return fill(left_NO, multiple).t() @ fill(right_NI, multiple)


def even_linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Does ``F.linear``, by products whose number of rows is that of ``row_multiple``."""
    rows = inputs.numel() // max(1, inputs.size(-1))
    if weight.dim() != 2 or weight.dtype != inputs.dtype or row_multiple(inputs, rows) == 1:
        return linear(inputs, weight, bias)
    return _EvenLinear.apply(inputs.reshape(rows, -1), weight, bias).view(*inputs.shape[:-1], -1)


class _EvenLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs_NI: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(inputs_NI if ctx.needs_input_grad[1] else None, weight)
        filled = fill(inputs_NI, row_multiple(inputs_NI, len(inputs_NI)))
        return linear(filled, weight, bias).resize_(len(inputs_NI), len(weight))

    @staticmethod
    def backward(ctx: Any, grad_NO: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs_NI, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        grad = fill(grad_NO, row_multiple(grad_NO, len(grad_NO)))
        return (
            torch.mm(grad, weight)[: len(grad_NO)] if needs_inputs else None,
            over_rows(grad, inputs_NI) if needs_weight else None,
            grad_NO.sum(0) if needs_bias else None,
        )


def blas_linear(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Does ``F.linear`` by BLAS on a CPU, forward and backward, in float32 at least; of threads see ``of_vectors``.

    oneDNN makes a kernel for every new number of rows, which takes longer than the product of a few rows.
    """
    if inputs.device.type != "cpu":
        return linear(inputs, weight)
    return _BlasLinear.apply(exact(inputs), exact(weight))


class _BlasLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs_NI: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inputs_NI, weight)
        with of_vectors(inputs_NI), torch.autocast("cpu", enabled=False):
            return inputs_NI @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad_NO: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs_NI, weight = ctx.saved_tensors
        needs_inputs, needs_weight = ctx.needs_input_grad
        with of_vectors(grad_NO), torch.autocast("cpu", enabled=False):
            return grad_NO @ weight if needs_inputs else None, grad_NO.t() @ inputs_NI if needs_weight else None


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch compute in one thread here; several would measure what else runs on the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _switch() -> tuple[Callable[[], str], Callable[[str], None], dict[str, str]]:
    """How to read and to write torch's switch, and the word for each way."""
    if hasattr(torch.backends.mkldnn, "matmul"):  # from torch 2.9 on: products on the CPU alone
        place = torch.backends.mkldnn.matmul, "fp32_precision"
        words = {"blas": "ieee", "onednn": "bf16"}
        return functools.partial(getattr, *place), functools.partial(setattr, *place), words
    words = {"blas": "highest", "onednn": "medium"}
    return torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, words


def _operands() -> tuple[torch.Tensor, ...]:
    """Inputs, a weight of four gates, and gradients of its products."""
    numbers = torch.Generator().manual_seed(1)
    shapes = ((ROWS, WIDTH), (4 * UNITS, WIDTH), (ROWS, 4 * UNITS))
    return tuple(torch.randn(shape, generator=numbers) / 16 for shape in shapes)


def _products(inputs: torch.Tensor, weight: torch.Tensor, gradients: torch.Tensor) -> list[torch.Tensor]:
    """The products of a linear layer: forward, gradient of the inputs, gradient of the weight."""
    return [inputs @ weight.T, gradients @ weight, gradients.T @ inputs]


def _results(inputs: torch.Tensor, weight: torch.Tensor, gradients: torch.Tensor) -> list[torch.Tensor]:
    """The products, and an LSTM step that starts with parts of the same numbers."""
    state = [gradients[None, :, :UNITS].contiguous()] * 2
    weights = [weight, weight[:, :UNITS].contiguous()]
    with torch.no_grad():
        step = torch.lstm(inputs[None], state, weights, False, 1, 0.0, False, False, False)
    return [*_products(inputs, weight, gradients), step[0]]
