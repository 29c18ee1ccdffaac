"""Products in bfloat16 on a CPU that multiplies float32 faster: in float32, rounded once."""

import functools
import math
import timeit
import warnings
from typing import Any

import torch

from . import products

# The time of a product in bfloat16, over float32's, from which rounding is worth it. Seen: 0.5 or less, 1.7 or more.
SLOW = 1.25
# Of the products that are measured. They are short, and in turn, so that other work on the machine meets both.
SIDE, ROUNDS = 256, 20
LARGE = 128  # rows and columns; below, rounding to and from float32 takes longer than it saves
# While it lives, ``_product`` stands in for torch's operators.
_operators: list[torch.library.Library] = []


@functools.cache
def is_slow() -> bool:
    """Whether a product in bfloat16 takes ``SLOW`` times as long as in float32; measured once, in some 20 ms."""
    dtypes = torch.bfloat16, torch.float32
    multiply = {dtype: functools.partial(torch.mm, *torch.ones(2, SIDE, SIDE, dtype=dtype)) for dtype in dtypes}
    seconds = dict.fromkeys(dtypes, math.inf)
    with products.one_thread():
        for dtype in ROUNDS * dtypes:
            seconds[dtype] = min(seconds[dtype], timeit.timeit(multiply[dtype], number=1))
    return seconds[torch.bfloat16] >= SLOW * seconds[torch.float32]


def multiply_in_float32() -> bool:
    """Let this process multiply bfloat16 matrices on the CPU in float32, where that is faster.

    Processors with AVX2 alone have no products in bfloat16: torch multiplies in plain loops, 3 to 60 times as slowly.
    Of those with AVX-512 some take twice float32's time, as an Intel Xeon without AMX: there large matrices alone, and
    no batches of them, are multiplied in float32. Results are those of other processors, sums in float32 that are
    rounded once. Products of other types take some microseconds longer. Where torch sees a GPU, whose attention the
    switch would concern, nothing is done. Returns whether it is done.
    """
    if _operators or torch.cuda.is_available() or (products.HAS_BFLOAT16 and not is_slow()):
        return bool(_operators)
    _operators.append(torch.library.Library("aten", "IMPL"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        in_place = {"mm": "addmm_", "addmm": "addmm_"}  # torch's own, which nothing replaces
        if not products.HAS_BFLOAT16:
            in_place |= {"bmm": "baddbmm_", "baddbmm": "baddbmm_"}
        for name, multiply in in_place.items():
            for overload in ("", ".out"):
                _operators[0].impl(name + overload, functools.partial(_product, multiply), "CPU")
    if not products.HAS_BFLOAT16:
        torch.backends.cuda.enable_flash_sdp(False)  # the CPU's fused attention has products of its own
    return True


def _product(multiply: str, *operands: torch.Tensor, beta: Any = 1, alpha: Any = 1, out: Any = None) -> torch.Tensor:
    """left @ right of two operands; beta * added + alpha * left @ right of three; by torch's operator ``multiply``."""
    *added, left, right = operands
    shape, dtype = (*left.shape[:-1], right.size(-1)), left.dtype
    if out is not None and out.dtype != dtype:
        raise RuntimeError(f"Expected out tensor to have dtype {dtype}, but got {out.dtype} instead")
    is_worth_it = not products.HAS_BFLOAT16 or min(*shape, left.size(-1)) >= LARGE
    if is_worth_it and {operand.dtype for operand in operands} == {torch.bfloat16}:
        *added, left, right = (operand.float() for operand in operands)
    is_sum = added and beta != 0
    total = added[0].expand(shape).clone() if is_sum else left.new_empty(shape)
    result = getattr(total, multiply)(left, right, beta=beta if is_sum else 0, alpha=alpha).to(dtype)
    return result if out is None else out.resize_(shape).copy_(result)
