"""From logits to losses and gradients by one Triton kernel: a GPU's memory is passed over twice, not ten times."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .loss_options import LossOptions

# Logits that a program has at a time; 2,048 to 4,096 took the least time on an H200, with V of 32,000 and 128,000.
BLOCK, WARPS = 4096, 8


@triton.jit
def _logits(
    own, columns, is_here, scale, offset, cap, HAS_SCALE: tl.constexpr, HAS_OFFSET: tl.constexpr, HAS_CAP: tl.constexpr
):
    """A row's logits in float32, and the cap's slope."""
    x = tl.load(own + columns, mask=is_here, other=float("nan")).to(tl.float32)
    slope = tl.full(x.shape, 1.0, tl.float32)
    if HAS_SCALE:
        x *= tl.load(scale + columns, mask=is_here, other=1.0)
    if HAS_OFFSET:
        x += tl.load(offset + columns, mask=is_here, other=0.0)
    if HAS_CAP:
        y = x / cap
        near_zero = y * (1 - y * y * (1 / 3 - y * y * (2 / 15 - y * y * (17 / 315))))  # where the other one cancels
        tanh = tl.where(tl.abs(y) < 0.2, near_zero, 2 / (1 + tl.exp(-2 * y)) - 1)
        slope = 1 - tanh * tanh
        x = tl.where(x == -float("inf"), x, cap * tanh)
    return x, slope


@triton.jit
def _row(
    scores, stride, target, scale, offset, unit, unit_stride, log_z, of_target, total,
    V, cap, confidence, each, z_loss,
    HAS_SCALE: tl.constexpr, HAS_OFFSET: tl.constexpr, HAS_CAP: tl.constexpr, HAS_UNIT: tl.constexpr,
    SMOOTHED: tl.constexpr, GRADIENT: tl.constexpr, TIMES_SCALE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    own, word = scores + row * stride, tl.load(target + row)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    logits = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, V, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        is_here = columns < V
        x, _ = _logits(own, columns, is_here, scale, offset, cap, HAS_SCALE, HAS_OFFSET, HAS_CAP)
        if SMOOTHED:
            logits += tl.where(is_here, x, 0.0)
        x = tl.where(is_here, x, -float("inf"))
        larger = tl.maximum(largest, x)
        finite = tl.where(larger == -float("inf"), 0.0, larger)
        sums = sums * tl.exp(largest - finite) + tl.exp(x - finite)
        largest = larger
    most = tl.max(largest, 0)
    z = most + tl.log(tl.sum(sums * tl.exp(largest - most), 0))
    place = word + tl.arange(0, 1)
    is_word = (place >= 0) & (place < V)  # else loss and gradient are NaN
    its_logit, _ = _logits(own, place, is_word, scale, offset, cap, HAS_SCALE, HAS_OFFSET, HAS_CAP)
    tl.store(of_target + row + tl.arange(0, 1), its_logit)
    tl.store(log_z + row, z)
    if SMOOTHED:
        tl.store(total + row, tl.sum(logits, 0))
    if GRADIENT:
        factor = tl.load(unit + row * unit_stride) if HAS_UNIT else 1.0
        of_all = tl.where((word >= 0) & (word < V), confidence + each * V + 2 * z_loss * z, float("nan"))
        tl.debug_barrier()  # all threads have read what some are about to overwrite
        for start in range(0, V, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            is_here = columns < V
            x, slope = _logits(own, columns, is_here, scale, offset, cap, HAS_SCALE, HAS_OFFSET, HAS_CAP)
            grad = of_all * tl.exp(x - z) - each - tl.where(columns == word, confidence, 0.0)
            if TIMES_SCALE:
                slope *= tl.load(scale + columns, mask=is_here, other=1.0)
            tl.store(own + columns, (grad * slope * factor).to(scores.dtype.element_ty), mask=is_here)


def rows_to_gradients(
    scores_NV: Tensor,
    target_N: Tensor,
    scale_V: Tensor | None,
    offset_V: Tensor | None,
    soft_cap: float | None,
    options: LossOptions,
    unit: Tensor | None,
    *,
    gradient: bool,
    times_scale: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """log Z, the target's logit and, with smoothing, the sum of all logits, each (N, 1) in float32.

    With ``gradient`` it overwrites the products w . h by ``unit`` (N,) or () times the gradient of ``output_loss``: of
    the products with ``times_scale``, else of the logits before the cap.
    """
    count, vocabulary = scores_NV.shape
    confidence, each = options.target_weights(vocabulary)
    log_z, of_target, total = torch.empty(3, count, 1, device=scores_NV.device, dtype=torch.float32)
    terms = [None if term is None else term.contiguous() for term in (scale_V, offset_V)]
    unit = None if unit is None else unit.expand(count)
    given = [scores_NV if term is None else term for term in (*terms, unit)]  # what is not there is not read
    with torch.cuda.device_of(scores_NV):
        _row[(count,)](
            scores_NV, scores_NV.stride(0), target_N.contiguous(), *given, given[-1].stride(0), log_z, of_target, total,
            vocabulary, soft_cap or 1.0, confidence, each, options.z_loss,
            HAS_SCALE=scale_V is not None, HAS_OFFSET=offset_V is not None, HAS_CAP=soft_cap is not None,
            HAS_UNIT=unit is not None, SMOOTHED=each > 0, GRADIENT=gradient,
            TIMES_SCALE=times_scale and scale_V is not None,
            BLOCK=min(BLOCK, triton.next_power_of_2(vocabulary)), num_warps=WARPS,
        )  # fmt: skip
    return log_z, of_target, total
