"""Cross entropy by blocks of rows: logits in memory are few, products large, and a GPU has one kernel between them."""

import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .loss_by_words import Gradients, Logits
from .loss_options import PLAIN_LOSS, OutputLoss
from .objective import Objective
from .precision import exact_dtype
from .products import fill, row_multiple
from .squared_norms import blocks, slices

# Rows of logits in memory at a time. 256 to 1,024 rows cost a CPU the same; thin products, and more passes over the
# table's gradient, cost more: with V = 128,000, 128 rows 1.05 times as much, 64 rows 1.21.
ROWS = 512
# Upper limit for the logits in memory (64 MB of float32), unless FEWEST_ROWS rows need more.
SCORES, FEWEST_ROWS = 2**24, 64
# A chunk of all rows makes the float32 sum of a table's gradient over chunks needless. The sum is as large as 2 D rows
# of logits, so up to that a CPU has them at once, in these dtypes: a step of 2 x 1500 units takes 0.95 of the time.
AT_ONCE = {torch.bfloat16}
# A GPU multiplies so fast that passes cost the most. Bytes of the logits in memory there: with N = 8,192, V = 128,000,
# D = 1,024 in bf16 an H200 takes 11.6 ms, with a quarter of them 16.1, with all logits at once 10.9.
GPU_BYTES = 2**29
# Gradients of logits are below 1, or below the largest scale. Before they are rounded to fp16, which has nothing below
# 6e-8, they are multiplied up to this bound, or less where products might overflow: see `fitting_loss_scale`. A row of
# tiny norm, with a method that divides by its square, therefore costs other rows' gradients precision: 1.5 % at a
# hundredth of their norm, most of it at a thousandth.
HALF_SCALE = 128.0
# Replaces a scale of 0, because the gradient of the scale is computed by a division by the scale; in fp16 it is a part
# of the largest scale.
SMALLEST_SCALE, SMALLEST_IN_HALF = 1e-30, 1e-4

# Products of half precision that are summed in float32, not rounded in between: torch 2.8 on, NVIDIA.
PRODUCTS_ROUND_ONCE = torch.version.hip is None and "dtype" in torch.ops.aten.addmm.overloads()

logger = logging.getLogger(__name__)

Kernel = Callable[..., tuple[Tensor, ...]]


def kernel_for(scores: Tensor) -> Kernel | None:
    """``rows_to_gradients`` of loss_kernel.py, on GPUs that can compile it and for dtypes that it has."""
    runs = scores.is_cuda and type(scores) is Tensor and not torch.compiler.is_compiling()
    return kernel_of_rows(scores.device) if runs and exact_dtype(scores) == torch.float32 else None


@functools.cache
def kernel_of_rows(device: torch.device) -> Kernel | None:
    """``rows_to_gradients``, which is compiled once; None, and a warning, where that fails."""
    try:
        from .loss_kernel import rows_to_gradients

        row = torch.zeros(1, 2, device=device)
        rows_to_gradients(row, row[0, :1].long(), None, None, None, PLAIN_LOSS, None, gradient=True, times_scale=True)
    except Exception as error:  # no Triton, no C compiler, a GPU that is too old: whatever it is, torch's operations do
        why = f"{type(error).__name__}: {error}".split("\n")[0]
        use = "Use Triton with a C compiler and Python's headers for the faster one"
        logger.warning(f"the loss on {device} takes torch's operations, since its kernel ended in {why}. {use}.")
        return None
    return rows_to_gradients


def loss_by_rows(
    logits: Logits, objective: Objective, needs_grad: tuple[bool, ...], weights_N: Tensor | None
) -> tuple[OutputLoss, Gradients]:
    """Does ``loss_by_words`` for any objective."""
    table = logits.table_VD
    logits = logits._replace(table_VD=table.to(logits.features_ND.dtype))
    return _LossByRows(logits, objective, needs_grad, weights_N).run(table)


def holds(rows: int, vocabulary: int) -> bool:
    """Whether a CPU has the logits of so many rows in memory at a time."""
    return rows * vocabulary <= SCORES


class _LossByRows:
    """Adds up losses and gradients over chunks of rows."""

    def __init__(self, logits: Logits, objective: Objective, needs_grad: tuple[bool, ...], weights: Tensor | None):
        self.features, self.table, self.scale, offset, self.target = logits
        features, table = self.features, self.table
        self.is_half = table.dtype == torch.float16
        if self.scale is not None:
            sizes = self.scale.abs()
            smallest = sizes.amax() * SMALLEST_IN_HALF if self.is_half else sizes.new_tensor(SMALLEST_SCALE)
            self.scale = torch.where(sizes < SMALLEST_SCALE, smallest.clamp(min=SMALLEST_SCALE), self.scale)
        self.logits, self.objective = Logits(features, table, self.scale, offset, self.target), objective
        self.options, self.weights = objective.options, weights
        self.exact = exact_dtype(table)
        # Factor on gradients until they are in float32 again. bfloat16 has float32's range and needs none.
        self.loss_scale: float | Tensor = 1.0
        self.components = objective.components()
        shape = () if self.options.reduce else (len(features) // self.components,)
        self.losses = [table.new_zeros(shape, dtype=self.exact) for _ in OutputLoss._fields]
        self.multiple = row_multiple(table, len(features))
        on_cpu, vocabulary = table.device.type == "cpu", max(len(table), 1)
        rows = max(SCORES // vocabulary if on_cpu else GPU_BYTES // (vocabulary * table.element_size()), FEWEST_ROWS)
        rows = min(ROWS, rows) if on_cpu else rows
        if on_cpu and needs_grad[1] and table.dtype in AT_ONCE and len(features) <= rows + 2 * table.size(1):
            rows = max(len(features), 1)
        rows = math.ceil(rows / self.components) * self.components
        self.scores = table.new_empty(self.filled(min(rows, len(features))), len(table))
        has_kernel = objective.log_prior_NK is None and not self.options.augmented_loss
        self.kernel = kernel_for(self.scores) if has_kernel else None
        # A block of rounded logits in float32. A copy into memory of its own takes half the time of one to new memory.
        block = self.scores[next(blocks(self.scores, self.components))]
        is_copied = self.kernel is None and block.dtype != self.exact
        self.block = torch.empty_like(block, dtype=self.exact) if is_copied else None
        self.similar = None if objective.similar_ND is None else objective.similar_ND.to(table.dtype)
        need_features, need_table, self.need_scale, need_offset = needs_grad
        self.needs_grad = any(needs_grad)
        dtype = self.exact if self.is_half else table.dtype
        self.grad_features = torch.empty_like(features, dtype=dtype) if need_features else None
        self.need_table = need_table or self.need_scale
        self.grad_table: Tensor | None = None  # before the first rows
        self.grad_offset = table.new_zeros(len(table), dtype=self.exact) if need_offset else None

    def filled(self, rows: int) -> int:
        """How many rows a product of so many has, the last ones zeros."""
        return math.ceil(rows / self.multiple) * self.multiple

    def run(self, table: Tensor) -> tuple[OutputLoss, Gradients]:
        """Losses and gradients of all rows; ``table`` is the argument of ``output_loss``."""
        count = len(self.target)
        most = max(1, len(self.scores) // self.components) * self.components
        chunks = max(1, math.ceil(count / most))  # of equal size
        rows_each = math.ceil(count / chunks / self.components) * self.components
        parts = list(slices(count, min(most, self.filled(rows_each) // self.components * self.components)))
        if self.is_half and count:
            self.loss_scale = self.fitting_loss_scale(parts)
        for rows in parts:
            self.add_rows(rows, self.target[rows])
        return OutputLoss(*self.losses), self.gradients(table)

    def fitting_loss_scale(self, parts: list[slice]) -> Tensor:
        """The factor on gradients |g| <= G in fp16: |sum_n g_n h_n| <= G sum_n |h_n|, |sum_v g_v w_v| <= 2 G max |w|.

        G is 1, and more with other terms of the loss; for that of z-loss |log Z| <= log V + max |z|.
        """
        of_features = [torch.linalg.vector_norm(self.features[rows], 1, 0, dtype=self.exact).amax() for rows in parts]
        of_table = 2 * torch.stack(torch.aminmax(self.table)).abs().amax().to(self.exact)
        largest = torch.stack((*of_features, of_table)).amax().clamp(min=1.0)
        scale = largest.new_ones(()) if self.scale is None else self.scale.abs().amax()
        if self.options.augmented_loss:
            largest = largest * (1 + self.options.augmented_loss / self.options.augmented_temperature)
        if self.options.z_loss:
            logit: float | Tensor | None = self.objective.soft_cap
            if logit is None:
                longest = (torch.linalg.vector_norm(x, dim=1, dtype=self.exact).amax() for x in self.logits[:2])
                offset = 0.0 if self.logits.offset_V is None else self.logits.offset_V.amax().abs()
                logit = math.prod(longest, start=scale) + offset
            largest = largest * (1 + 2 * self.options.z_loss * (math.log(len(self.table)) + logit))
        return (0.9 * torch.finfo(torch.float16).max / largest).clamp(max=HALF_SCALE) / scale.clamp(min=1.0)

    def add_rows(self, rows: slice, target: Tensor) -> None:
        count, features = len(target), fill(self.features[rows], self.multiple)
        scores = self.scores[: len(features)]
        torch.mm(features, self.table.t(), out=scores)
        similar = None if self.similar is None else torch.mm(fill(self.similar[rows], self.multiple), self.table.t())
        own = scores[:count]
        if self.kernel is not None:
            self._to_gradient_by(self.kernel, own, target, rows)
        for block in blocks(own, self.components) if self.kernel is None else ():
            rounded = own[block]
            exact = rounded if self.block is None else self.block[: len(rounded)].copy_(rounded)
            where = slice(rows.start + block.start, rows.start + min(block.stop, count))
            soft = None if similar is None else similar[:count][block].to(self.exact)
            self._to_gradient(exact, target[block].unsqueeze(1), where, soft)
            if self.block is not None:
                rounded.copy_(exact)
        if self.grad_features is not None:
            if self.is_half:
                torch.div(torch.mm(scores, self.table), self.loss_scale, out=self.grad_features[rows])
            elif len(scores) > count:
                self.grad_features[rows] = torch.mm(scores, self.table)[:count]
            else:
                torch.mm(scores, self.table, out=self.grad_features[rows])
        if self.need_table:
            self._add_to_table(scores.t(), features, is_all=count == len(self.target))

    def _add_to_table(self, left: Tensor, right: Tensor, *, is_all: bool) -> None:
        """Adds a product to the table's gradient; the sum over chunks is in float32 beside products in half."""
        before, is_exact = self.grad_table, right.dtype == self.exact
        if before is None and (is_exact or (is_all and not self.is_half)):
            self.grad_table = torch.mm(left, right)
        elif before is not None and is_exact:
            before.addmm_(left, right)
        elif right.is_cuda and PRODUCTS_ROUND_ONCE and not torch.compiler.is_compiling():
            add: Any = torch.mm if before is None else functools.partial(torch.addmm, before, out=before)
            self.grad_table = add(left, right, out_dtype=self.exact)
        else:
            self.grad_table = total = torch.empty_like(self.table, dtype=self.exact) if before is None else before
            for rows in blocks(total):  # a whole product would be held in half precision and in float32 at once
                add = total[rows].copy_ if before is None else total[rows].add_
                add(torch.mm(left[rows], right))

    def gradients(self, table: Tensor) -> Gradients:
        """Gradients of features, table, scale and offset."""
        if self.is_half:
            for grad in (self.grad_table, self.grad_offset):
                if grad is not None:
                    grad.div_(self.loss_scale)
        grad_scale = None
        if self.need_scale and self.grad_table is not None and self.scale is not None:
            # Row v of the table's gradient is scale_v A_v, and dL/dscale_v = w_v . A_v.
            grad_scale = torch.empty_like(self.scale)
            for rows in blocks(table):
                grad_scale[rows] = torch.linalg.vecdot(self.grad_table[rows].to(self.exact), table[rows].to(self.exact))
            grad_scale /= self.scale
        return self.grad_features, self.grad_table, grad_scale, self.grad_offset

    def _to_gradient_by(self, kernel: Kernel, scores: Tensor, target: Tensor, where: slice) -> None:
        """Does ``_to_gradient`` for all rows at once; an offset's gradient is that of rounded logits."""
        factor = self.loss_scale if self.weights is None else self.loss_scale * self.weights[where]
        options, offset, grad_offset = self.options, self.logits.offset_V, self.grad_offset
        sums = kernel(
            scores, target, self.scale, offset, self.objective.soft_cap, options,
            factor if isinstance(factor, Tensor) else None, gradient=self.needs_grad, times_scale=grad_offset is None,
        )  # fmt: skip
        self._add(options.cross_entropy(scores.size(1), *sums)[:2], where)
        if grad_offset is not None:
            grad_offset += scores.sum(0, dtype=self.exact)
            if self.scale is not None:
                scores.mul_(self.scale)

    def _add(self, losses: tuple[Tensor, ...], words: slice) -> None:
        for total, values in zip(self.losses, losses, strict=True):
            if self.options.reduce:
                total += values.sum()
            else:
                total[words] = values.squeeze(1)

    def _to_gradient(self, scores: Tensor, target: Tensor, where: slice, similar: Tensor | None) -> None:
        """Adds the losses of a block of rows and overwrites its products w . h with d loss / d (w . h), scaled."""
        self.logits.complete(scores, slice(None))
        slope = self.objective.cap(scores)
        words = slice(where.start // self.components, where.stop // self.components)
        factor: float | Tensor = self.loss_scale
        if self.weights is not None:
            factor = factor * self.weights[words].repeat_interleave(self.components).unsqueeze(1)
        if self.objective.log_prior_NK is None:
            losses = self._cross_entropy(scores, target, similar, factor)
        else:
            losses = self.objective.mix(scores, target, where, self.options.target_weights(len(self.table)))
            if self.is_half or self.weights is not None:
                scores.mul_(factor)
        self._add(losses, words)
        if not self.needs_grad:
            return
        if slope is not None:
            scores.mul_(slope)
        if self.grad_offset is not None:
            self.grad_offset += scores.sum(0)
        if self.scale is not None:
            scores.mul_(self.scale)

    def _cross_entropy(
        self, scores: Tensor, target: Tensor, similar: Tensor | None, factor: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss and negative log-likelihood of a block; overwrites its logits with their gradients, times ``factor``."""
        confidence, smoothing = self.options.target_weights(scores.size(1))
        soft = None if similar is None else self.objective.divergence(scores, similar, self.scale)
        sums = scores.gather(1, target), scores.sum(1, keepdim=True) if smoothing else scores[:, :1]
        largest = scores.amax(1, keepdim=True)
        torch.softmax(scores, 1, out=scores)
        # The largest probability, 1 / V at least, is exp(largest - log Z).
        log_partition = largest - scores.amax(1, keepdim=True).log()
        loss, nll, weight = self.options.cross_entropy(scores.size(1), log_partition, *sums)
        if soft is not None:
            loss = loss + soft[0]
        if self.needs_grad:
            if smoothing or self.options.z_loss or self.is_half or self.weights is not None:
                scores.mul_(weight.mul_(factor))
            if smoothing:
                scores.sub_(smoothing * factor)
            scores.scatter_add_(1, target, torch.full_like(log_partition, -confidence).mul_(factor))
            if soft is not None:
                scores.add_(soft[1].mul_(factor))
        return loss, nll
