"""Products in bfloat16 on a CPU that multiplies float32 faster: in float32, rounded once."""

import functools
import timeit
import warnings
from typing import Any

import torch

from . import products

# The time of a product in bfloat16, over float32's, from which roundings are worth it. Seen: 2, and 0.5 or less.
SLOW = 1.5
SIDE = 512  # of the matrices that are measured
LARGE = 128  # rows and columns; below, rounding to and from float32 takes longer than it saves
# While it lives, ``_product`` stands in for torch's operators.
_operators: list[torch.library.Library] = []


@functools.cache
def is_slow() -> bool:
    """Whether a product in bfloat16 takes ``SLOW`` times as long as in float32; measured once, in some 30 ms."""
    seconds = []
    with products.one_thread():
        for dtype in (torch.bfloat16, torch.float32):
            multiply = functools.partial(torch.mm, *torch.ones(2, SIDE, SIDE, dtype=dtype))
            seconds.append(min(timeit.repeat(multiply, number=1, repeat=products.ROUNDS)))
    return seconds[0] >= SLOW * seconds[1]


def multiply_in_float32() -> bool:
    """Let this process multiply bfloat16 matrices on the CPU in float32, where that is faster.

    Processors with AVX2 alone have no products in bfloat16: torch multiplies in plain loops, 3 to 60 times as slowly.
    Intel's with AVX-512 and without AMX take twice float32's time: there large matrices alone, and no batches of them,
    are multiplied in float32. Results are those of other processors, sums in float32 that are rounded once. Products of
    other types take some microseconds longer. Where torch sees a GPU, whose attention the switch would concern, nothing
    is done. Returns whether it is done.
    """
    if _operators or torch.cuda.is_available() or (products.HAS_BFLOAT16 and not is_slow()):
        return bool(_operators)
    _operators.append(torch.library.Library("aten", "IMPL"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        for name in ("mm", "addmm") if products.HAS_BFLOAT16 else ("mm", "addmm", "bmm", "baddbmm"):
            for overload in ("", ".out"):
                _operators[0].impl(name + overload, _product, "CPU")
    if not products.HAS_BFLOAT16:
        torch.backends.cuda.enable_flash_sdp(False)  # the CPU's fused attention has products of its own
    return True


def _product(*operands: torch.Tensor, beta: Any = 1, alpha: Any = 1, out: Any = None) -> torch.Tensor:
    """left @ right of two operands; beta * added + alpha * left @ right of three."""
    *added, left, right = operands
    shape, dtype = (*left.shape[:-1], right.size(-1)), left.dtype
    if dtype == torch.bfloat16 and not (products.HAS_BFLOAT16 and min(*shape, left.size(-1)) < LARGE):
        dtype = torch.float32
    beta = beta if added else 0
    total = added[0].to(dtype).expand(shape).clone() if beta != 0 else left.new_empty(shape, dtype=dtype)
    # In place: these operators stay torch's own.
    multiply = total.addmm_ if total.dim() == 2 else total.baddbmm_
    result = multiply(left.to(dtype), right.to(dtype), beta=beta, alpha=alpha).to(left.dtype)
    return result if out is None else out.resize_(shape).copy_(result)
