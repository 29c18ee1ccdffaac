"""Cross entropy from features and a table, without the N x V logits in memory."""

import functools
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._shapes import check_loss_inputs
from .loss_by_words import Logits, loss_by_words
from .loss_options import PLAIN_LOSS as PLAIN_LOSS
from .loss_options import LossOptions as LossOptions
from .loss_options import OutputLoss as OutputLoss
from .loss_options import check_unset
from .objective import Objective
from .precision import exact_dtype
from .products import fill, row_multiple
from .squared_norms import blocks, slices

# Rows of logits in memory at a time. 256 to 1,024 rows cost a CPU the same; thin products, and more passes over the
# table's gradient, cost more: with V = 128,000, 128 rows 1.05 times as much, 64 rows 1.21.
ROWS = 512
# Upper limit for the logits in memory (64 MB of float32), unless FEWEST_ROWS rows need more.
SCORES, FEWEST_ROWS = 2**24, 64
# A GPU multiplies so fast that passes cost the most. Bytes of the logits in memory there: with N = 8,192, V = 128,000,
# D = 1,024 in bf16 an H200 takes 11.6 ms, with a quarter of them 16.1, with all logits at once 10.9.
GPU_BYTES = 2**29
# Products in these dtypes, on a CPU, go by words where SCORES has fewer rows than this; float32 would take 1.25 times
# as long. V = 250,000, D = 128: 4 MB beyond the gradient instead of 309, in 0.9 of the time.
BY_WORDS, BY_WORDS_BELOW = {torch.bfloat16}, 128
# Gradients of logits are below 1, or below the largest scale. Before they are rounded to fp16, which has nothing below
# 6e-8, they are multiplied up to this bound, or less where products might overflow: see `_ChunkedLoss.lift`. A row of
# tiny norm, with a method that divides by its square, therefore costs other rows' gradients precision: 1.5 % at a
# hundredth of their norm, most of it at a thousandth.
HALF_SCALE = 128.0
# Replaces a scale of 0, because the gradient of the scale is computed by a division by the scale; in fp16 it is a part
# of the largest scale.
SMALLEST_SCALE, SMALLEST_IN_HALF = 1e-30, 1e-4

# Products of half precision that are summed in float32, not rounded in between: torch 2.8 on, NVIDIA.
PRODUCTS_ROUND_ONCE = torch.version.hip is None and "dtype" in torch.ops.aten.addmm.overloads()

logger = logging.getLogger(__name__)


def output_loss(
    features_ND: Tensor,
    table_VD: Tensor,
    target_N: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
    similar_ND: Tensor | None = None,
    log_prior_NK: Tensor | None = None,
    options: LossOptions = PLAIN_LOSS,
) -> OutputLoss:
    """Cross entropy, summed over tokens, of the logits z_v = scale_v (w_v . h) + offset_v + bias_v.

    With fairseq's label smoothing, e_i = e / (V - 1), and log Z = log sum_v exp z_v:

        loss = sum_n  -(1 - e - e_i) log p(target_n)  -  e_i sum_v log p_n(v)  +  z_loss (log Z_n)^2
                      + augmented_loss KL(softmax(y_n / tau) || softmax(z_n / tau))

    with y_v = scale_v (w_v . similar) + offset_v, constants without a gradient, and tau the augmented temperature.

    The forward pass also computes the gradients, from ``ROWS`` rows of logits at a time, on a GPU from ``GPU_BYTES`` of
    them. Memory is therefore that of the table's gradient, not N x V. Without ``reduce``, and in a second backward
    pass, they are computed again.
    Arithmetic on logits is in float32 (float64 for a float64 table); products use the table's or autocast's dtype.

    Args:
        features_ND: features h, one row per token to predict.
        table_VD: table W.
        target_N: target tokens in [0, V).
        scale: (V,), or None for 1. To have a gradient, 0 counts as 1e-30, in fp16 as 1e-4 of the largest.
        offset, bias: (V,), or None for 0.
        soft_cap: c, for c tanh(z / c) in place of z; None for z. A logit of -inf stays.
        similar_ND: features of the soft targets, for ``augmented_loss``.
        log_prior_NK: log pi of p = sum_k pi_k p_k, a mixture of K softmaxes a token, whose features (N K, D) follow one
            another; None for one softmax. Without z-loss and augmented loss.
        options: label smoothing, z-loss, and whether to sum.

    Raises:
        ValueError: if shapes do not fit, the cap is not positive, features of soft targets are missing, options do not
            fit a mixture or, on a CPU and where it is not compiled, a target is out of range.
        RuntimeError: in the backward pass, for second derivatives.

    Source: z-loss, which keeps logits close to log-probabilities: Devlin et al. 2014 (self-normalised networks);
    Chowdhery et al. 2022 (PaLM), section 5. Augmented loss: Inan et al. 2017, section 3.
    """
    if log_prior_NK is not None:
        if log_prior_NK.dim() != 2 or len(log_prior_NK) != len(target_N):
            shape = tuple(log_prior_NK.shape)
            raise ValueError(f"log_prior: needs shape ({len(target_N)}, K); got {shape}. Use a row per token.")
        check_unset(options, ("z_loss", "augmented_loss"), "a mixture (log_prior_NK)")
        target_N = target_N.repeat_interleave(log_prior_NK.size(1))
    terms = {"scale": scale, "offset": offset, "bias": bias}
    check_loss_inputs(features_ND, table_VD, target_N, terms, similar_ND, soft_cap)
    target_N = target_N.long()  # torch 2.6 gathers by int64 alone
    if options.augmented_loss and similar_ND is None:
        got = f"{options.augmented_loss} without"
        raise ValueError(f"--augmented-loss: needs features of the soft targets; got {got}. Use similar_ND.")
    exact = exact_dtype(table_VD)
    similar, start = (None if tensor is None else tensor.detach() for tensor in (similar_ND, offset))
    prior = None if log_prior_NK is None else log_prior_NK.detach().to(exact).contiguous()
    objective = Objective(options, soft_cap, similar, start, prior, None if prior is None else torch.zeros_like(prior))
    if bias is not None:
        offset = bias.to(exact) if offset is None else offset.to(exact) + bias
    scale, offset = (None if term is None else term.to(exact) for term in (scale, offset))
    inputs: tuple[Tensor | None, ...] = (features_ND, table_VD, scale, offset)
    if not torch.is_grad_enabled():  # a Function's forward pass cannot see grad mode
        inputs = tuple(None if tensor is None else tensor.detach() for tensor in inputs)
    return objective.with_weights(OutputLoss(*_OutputLoss.apply(*inputs, target_N, objective)), log_prior_NK)


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


Gradients = tuple[Tensor | None, ...]


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        table: Tensor,
        scale: Tensor | None,
        offset: Tensor | None,
        target: Tensor,
        objective: Objective,
    ) -> tuple[Tensor | None, ...]:
        device = "cpu" if features.is_meta else features.device.type  # meta tensors have no autocast
        autocast = torch.is_autocast_enabled(device) and table.dtype == torch.float32
        ctx.product_dtype = torch.get_autocast_dtype(device) if autocast else table.dtype
        ctx.objective, ctx.needs_grad = objective, ctx.needs_input_grad[:4]
        needs_grad = ctx.needs_grad if objective.options.reduce else (False,) * 4
        inputs: Any = (features, table, scale, offset, target)
        losses, grads = _losses_and_gradients(inputs, objective, ctx.product_dtype, needs_grad, None)
        ctx.grads = grads if any(needs_grad) else None
        if any(ctx.needs_grad):
            ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(losses.nll_loss)
        return tuple(losses)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> Gradients:
        if torch.is_grad_enabled():
            needs = "a backward pass without create_graph, because it has no second derivatives"
            raise RuntimeError(f"output_loss: needs {needs}; got create_graph=True. Use F.cross_entropy of the logits.")
        inputs: Any = ctx.saved_tensors
        # Handed out once, so that autograd may add to the gradients in place.
        grads, ctx.grads = ctx.grads, None
        weights = None
        if not ctx.objective.options.reduce:
            smallest = grad_loss.new_full((1,), torch.finfo(grad_loss.dtype).tiny)  # for N = 0, too
            largest = torch.cat((grad_loss.abs(), smallest)).amax()
            weights, grad_loss = grad_loss / largest, largest
        if grads is None:
            _, grads = _losses_and_gradients(inputs, ctx.objective, ctx.product_dtype, ctx.needs_grad, weights)
        # Without loss scaling the factor is 1; skipping the product saves a pass over V x D.
        is_one = not (torch.compiler.is_compiling() or grad_loss.is_cuda) and grad_loss.item() == 1.0

        def scaled(grad: Tensor, dtype: torch.dtype) -> Tensor:
            # Rounded to half precision after fp16's loss scaling, which lifts small gradients into its range.
            exact = grad.to(torch.promote_types(grad.dtype, dtype))
            return (exact if is_one else exact.mul_(grad_loss)).to(dtype)

        pairs = zip(grads, inputs[:4], strict=True)
        return *(None if grad is None else scaled(grad, tensor.dtype) for grad, tensor in pairs), None, None


def _losses_and_gradients(
    inputs: Any, objective: Objective, product_dtype: torch.dtype, needs_grad: tuple[bool, ...], weights: Tensor | None
) -> tuple[OutputLoss, Gradients]:
    """Does ``loss_by_words`` for any objective; ``inputs`` are features, table, scale, offset and target."""
    features, table, *_, target = inputs
    logits = Logits(features.to(product_dtype), *inputs[1:])
    with torch.autocast("cpu" if features.is_meta else features.device.type, enabled=False):
        few = len(table) * min(len(target), BY_WORDS_BELOW) > SCORES
        if few and product_dtype in BY_WORDS and not table.is_cuda and objective.is_plain():
            return loss_by_words(logits, objective.options, needs_grad, weights)
        logits = Logits(logits.features_ND, table.to(product_dtype), *inputs[2:])
        return _ChunkedLoss(logits, objective, needs_grad, weights).run(table)


class _ChunkedLoss:
    """Accumulates losses and gradients over chunks of rows."""

    def __init__(self, logits: Logits, objective: Objective, needs_grad: tuple[bool, ...], weights: Tensor | None):
        self.features, self.table, self.scale, offset, self.target = logits
        features, table = self.features, self.table
        self.is_lifted = table.dtype == torch.float16
        if self.scale is not None:
            sizes = self.scale.abs()
            smallest = sizes.amax() * SMALLEST_IN_HALF if self.is_lifted else sizes.new_tensor(SMALLEST_SCALE)
            self.scale = torch.where(sizes < SMALLEST_SCALE, smallest.clamp(min=SMALLEST_SCALE), self.scale)
        self.logits, self.objective = Logits(features, table, self.scale, offset, self.target), objective
        self.options, self.weights = objective.options, weights
        self.exact = exact_dtype(table)
        # Factor on gradients until they are in float32 again. bfloat16 has float32's range and needs none.
        self.unit: float | Tensor = 1.0
        self.together = objective.rows_a_word()
        shape = () if self.options.reduce else (len(features) // self.together,)
        self.losses = [table.new_zeros(shape, dtype=self.exact) for _ in OutputLoss._fields]
        self.multiple = row_multiple(table, len(features))
        on_cpu, vocabulary = table.device.type == "cpu", max(len(table), 1)
        rows = max(SCORES // vocabulary if on_cpu else GPU_BYTES // (vocabulary * table.element_size()), FEWEST_ROWS)
        rows = min(ROWS, rows) if on_cpu else rows
        rows = math.ceil(rows / self.together) * self.together
        self.scores = table.new_empty(self.filled(min(rows, len(features))), len(table))
        has_kernel = self.together == 1 and not self.options.augmented_loss
        self.kernel = kernel_for(self.scores) if has_kernel else None
        self.similar = None if objective.similar_ND is None else objective.similar_ND.to(table.dtype)
        need_features, need_table, self.need_scale, need_offset = needs_grad
        self.needs_grad = any(needs_grad)
        dtype = self.exact if self.is_lifted else table.dtype
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
        most = max(1, len(self.scores) // self.together) * self.together
        chunks = max(1, math.ceil(count / most))  # of equal size
        rows_each = math.ceil(count / chunks / self.together) * self.together
        parts = list(slices(count, min(most, self.filled(rows_each) // self.together * self.together)))
        if self.is_lifted and count:
            self.unit = self.lift(parts)
        for rows in parts:
            self.add_rows(rows, self.target[rows])
        return OutputLoss(*self.losses), self.gradients(table)

    def lift(self, parts: list[slice]) -> Tensor:
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
        for block in blocks(own, self.together) if self.kernel is None else ():
            exact = own[block].to(self.exact)
            where = slice(rows.start + block.start, rows.start + min(block.stop, count))
            soft = None if similar is None else similar[:count][block].to(self.exact)
            self._to_gradient(exact, target[block].unsqueeze(1), where, soft)
            if own.dtype != exact.dtype:
                own[block].copy_(exact)
        if self.grad_features is not None:
            if self.is_lifted:
                torch.div(torch.mm(scores, self.table), self.unit, out=self.grad_features[rows])
            elif len(scores) > count:
                self.grad_features[rows] = torch.mm(scores, self.table)[:count]
            else:
                torch.mm(scores, self.table, out=self.grad_features[rows])
        if self.need_table:
            self._add_to_table(scores.t(), features, is_all=count == len(self.target))

    def _add_to_table(self, left: Tensor, right: Tensor, *, is_all: bool) -> None:
        """Adds a product to the table's gradient; the sum over chunks is in float32 beside products in half."""
        before, is_exact = self.grad_table, right.dtype == self.exact
        if before is None and (is_exact or (is_all and not self.is_lifted)):
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
        if self.is_lifted:
            for grad in (self.grad_table, self.grad_offset):
                if grad is not None:
                    grad.div_(self.unit)
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
        unit = self.unit if self.weights is None else self.unit * self.weights[where]
        options, offset, grad_offset = self.options, self.logits.offset_V, self.grad_offset
        sums = kernel(
            scores, target, self.scale, offset, self.objective.soft_cap, options,
            unit if isinstance(unit, Tensor) else None, gradient=self.needs_grad, times_scale=grad_offset is None,
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
        """Adds the losses of a block of rows and overwrites its products w . h with ``unit`` d loss / d (w . h)."""
        self.logits.complete(scores, slice(None))
        slope = self.objective.cap(scores)
        words = slice(where.start // self.together, where.stop // self.together)
        unit: float | Tensor = self.unit
        if self.weights is not None:
            unit = unit * self.weights[words].repeat_interleave(self.together).unsqueeze(1)
        if self.objective.log_prior_NK is None:
            losses = self._cross_entropy(scores, target, similar, unit)
        else:
            losses = self.objective.mix(scores, target, where, self.options.shares(len(self.table)))
            if self.is_lifted or self.weights is not None:
                scores.mul_(unit)
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
        self, scores: Tensor, target: Tensor, similar: Tensor | None, unit: float | Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss and negative log-likelihood of a block; overwrites its logits with their gradients, times ``unit``."""
        confidence, smoothing = self.options.shares(scores.size(1))
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
            if smoothing or self.options.z_loss or self.is_lifted or self.weights is not None:
                scores.mul_(weight.mul_(unit))
            if smoothing:
                scores.sub_(smoothing * unit)
            scores.scatter_add_(1, target, torch.full_like(log_partition, -confidence).mul_(unit))
            if soft is not None:
                scores.add_(soft[1].mul_(unit))
        return loss, nll
