"""From features and a table to the loss, without ever holding the N x V scores."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ._shapes import check_loss_inputs
from .squared_norms import blocks, slices

# Rows of scores held at a time. 256 to 1,024 rows cost the same within noise; fewer make thin matrix products, and more
# passes over the table's gradient: with 128,000 words 128 rows take 1.05 of the time of 512, and 64 rows 1.21.
ROWS = 512
# But no more scores than these, 64 MB of float32, as long as this leaves so many rows.
SCORES = 2**24
FEWEST_ROWS = 128
# Gradients of scores are brought below this, from below 1 or the largest scale, before they are rounded to half
# precision: fp16 has nothing below 6e-8, and their products with features stay below its largest number. So a row whose
# norm is near 0, with a method that divides by its square, costs the gradients of the others precision: at a hundredth
# of their norms 1.5 %, at a thousandth most of it (fp16).
HALF_SCALE = 128.0
# What a scale of 0 is taken for, since its gradient is found by dividing by it: nothing beside any score of float32.
SMALLEST_SCALE = 1e-30


@dataclass(frozen=True)
class LossOptions:
    """What is computed of the scores.

    Attributes:
        label_smoothing: e in [0, 1).
        z_loss: weight of (log Z)^2, 0 or more, which keeps scores close to log-probabilities.
        reduce: the sum over the words, or one number a word.

    Raises:
        ValueError: if a number is out of range.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    reduce: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.reduce, bool):
            raise ValueError(f"reduce: needs True for the sum or False; got {self.reduce!r}. Use True.")
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"--label-smoothing: needs a value in [0, 1); got {self.label_smoothing}. Use 0.1, say.")
        if not 0.0 <= self.z_loss < math.inf:
            raise ValueError(f"--z-loss: needs a finite value, 0 or more; got {self.z_loss}. Use 1e-4, say.")


PLAIN_LOSS = LossOptions()


def check_plain(options: LossOptions, where: str) -> None:
    """Checks that neither label smoothing nor z-loss is asked for, which need the scores of all words.

    Args:
        options: of a loss.
        where: what does not have these, for the message.

    Raises:
        ValueError: naming the flag.
    """
    for flag, value in (("--label-smoothing", options.label_smoothing), ("--z-loss", options.z_loss)):
        if value:
            raise ValueError(f"{flag}: needs 0 with {where}; got {value}. Leave it out.")


class OutputLoss(NamedTuple):
    """Losses of the N predicted words in nats: their sums, or (N,) without ``reduce``.

    Attributes:
        loss: what is trained, the one with a gradient: label-smoothed cross entropy and z-loss, or a surrogate.
        nll_loss: negative log-likelihood of the targets, detached; None where what is trained is no likelihood.
    """

    loss: Tensor
    nll_loss: Tensor | None


def check_evaluated(loss: Tensor) -> None:
    """Checks that a loss that is printed is a number. Not in training, which it would wait in: fairseq sees gradients.

    Raises:
        ValueError: for NaN.
    """
    if loss.isnan().any():
        raise ValueError(
            "validation: needs a loss that is a number; got nan. Use a checkpoint from before the training diverged, "
            "or no --fp16."
        )


def output_loss(
    features_ND: Tensor,
    table_VD: Tensor,
    target_N: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    bias: Tensor | None = None,
    options: LossOptions = PLAIN_LOSS,
) -> OutputLoss:
    """Cross entropy, summed over words, of the scores z_v = scale_v (w_v . h) + offset_v + bias_v.

    With label smoothing as fairseq defines it, e_i = e / (V - 1), and log Z = log sum_v exp z_v:

        loss = sum_n  -(1 - e - e_i) log p(target_n)  -  e_i sum_v log p_n(v)  +  z_loss (log Z_n)^2

    The gradients are computed in the forward pass, at most ``ROWS`` rows of scores at a time, so memory is that of the
    table's gradient, and not of N x V; a second backward pass, and one without ``reduce``, computes them again.
    Arithmetic on scores is in float32 (float64 for a float64 table); the products are in the precision of the table, or
    of autocast.

    Args:
        features_ND: h, one row per word to predict.
        table_VD: W.
        target_N: the right words, in [0, V).
        scale: (V,), or None for 1. A 0 is taken for 1e-30, so that it gets its gradient.
        offset: (V,), or None for 0.
        bias: (V,), or None for 0.
        options: what is computed.

    Raises:
        ValueError: for shapes that do not fit, and, on a CPU, words out of range.
        RuntimeError: in the backward pass, if second derivatives are asked for.

    Source: z-loss: Devlin et al. 2014 (self-normalised networks); Chowdhery et al. 2022 (PaLM), section 5.
    """
    check_loss_inputs(features_ND, table_VD, target_N, {"scale": scale, "offset": offset, "bias": bias})
    exact = torch.promote_types(table_VD.dtype, torch.float32)
    if bias is not None:
        offset = bias.to(exact) if offset is None else offset + bias
    scale, offset = (None if term is None else term.to(exact) for term in (scale, offset))
    inputs: tuple[Tensor | None, ...] = (features_ND, table_VD, scale, offset)
    if not torch.is_grad_enabled():  # which a Function's forward pass cannot see
        inputs = tuple(None if each is None else each.detach() for each in inputs)
    return OutputLoss(*_OutputLoss.apply(*inputs, target_N, options))


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
        options: LossOptions,
    ) -> OutputLoss:
        device = features.device.type
        autocast = torch.is_autocast_enabled(device) and table.dtype == torch.float32
        ctx.product_dtype = torch.get_autocast_dtype(device) if autocast else table.dtype
        ctx.options, ctx.needs_grad = options, ctx.needs_input_grad[:4]
        needs_grad = ctx.needs_grad if options.reduce else (False,) * 4
        inputs: Any = (features, table, scale, offset, target)
        losses: OutputLoss
        losses, grads = _losses_and_gradients(inputs, options, ctx.product_dtype, needs_grad)
        ctx.grads = grads if any(needs_grad) else None
        if any(ctx.needs_grad):
            ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(losses.nll_loss)
        return losses

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _grad_nll: Tensor) -> Gradients:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "output_loss: needs a backward pass without create_graph, having no second derivatives; got one with "
                "create_graph=True. Use F.cross_entropy of the scores."
            )
        inputs: Any = ctx.saved_tensors
        # Given away once, so that whoever gets them may add to them in place.
        grads, ctx.grads = ctx.grads, None
        weights = None
        if not ctx.options.reduce:
            smallest = grad_loss.new_full((1,), torch.finfo(grad_loss.dtype).tiny)  # and the largest of no words
            largest = torch.cat((grad_loss.abs(), smallest)).amax()
            weights, grad_loss = grad_loss / largest, largest
        if grads is None:
            _, grads = _losses_and_gradients(inputs, ctx.options, ctx.product_dtype, ctx.needs_grad, weights)
        # Without loss scaling the factor is 1, and the product would be one more pass over V x D.
        is_one = not grad_loss.is_cuda and grad_loss.item() == 1.0

        def scaled(grad: Tensor, dtype: torch.dtype) -> Tensor:
            # To half precision only now, when fp16's loss scaling has lifted small gradients into its range.
            if is_one:
                return grad.to(dtype)
            return torch.mul(grad, grad_loss, out=torch.empty_like(grad, dtype=dtype))

        pairs = zip(grads, inputs, strict=False)
        return *(None if grad is None else scaled(grad, each.dtype) for grad, each in pairs), None, None


def _losses_and_gradients(
    inputs: Any,
    options: LossOptions,
    product_dtype: torch.dtype,
    needs_grad: tuple[bool, ...],
    weights: Tensor | None = None,
) -> tuple[OutputLoss, Gradients]:
    """The losses, and the gradients of features, table, scale and offset that are needed.

    Args:
        inputs: features, table, scale, offset and target, as for ``output_loss``.
        options: what is computed.
        product_dtype: of the matrix products.
        needs_grad: of which of the first four inputs a gradient is needed.
        weights: of each word's loss (N,) in the gradients; None for 1.
    """
    features, table, scale, offset, target = inputs
    with torch.autocast(features.device.type, enabled=False):
        sums = _ChunkedLoss(
            features.to(product_dtype), table.to(product_dtype), scale, offset, options, needs_grad, weights
        )
        chunks = max(1, math.ceil(len(target) / max(1, len(sums.scores))))  # of equal size
        for rows in slices(len(target), math.ceil(len(target) / chunks)):
            sums.add_rows(rows, target[rows])
        return sums.losses(), sums.gradients(table)


class _ChunkedLoss:
    """Losses and gradients of the rows seen so far."""

    def __init__(
        self,
        features: Tensor,
        table: Tensor,
        scale: Tensor | None,
        offset: Tensor | None,
        options: LossOptions,
        needs_grad: tuple[bool, ...],
        weights: Tensor | None,
    ):
        self.features, self.table, self.offset = features, table, offset
        self.scale = None if scale is None else scale.masked_fill(scale.abs() < SMALLEST_SCALE, SMALLEST_SCALE)
        # With one word in all nothing is left to spread.
        self.smoothing = options.label_smoothing / max(len(table) - 1, 1)
        self.confidence = 1.0 - options.label_smoothing - self.smoothing
        self.z_loss, self.reduce, self.weights = options.z_loss, options.reduce, weights
        self.exact = torch.promote_types(table.dtype, torch.float32)
        self.is_half = self.exact != table.dtype
        # What gradients are multiplied by until they are in float32.
        self.unit: float | Tensor = 1.0
        if self.is_half:
            self.unit = HALF_SCALE if self.scale is None else HALF_SCALE / self.scale.abs().amax().clamp(min=1.0)
        shape = () if options.reduce else (len(features),)
        self.loss = table.new_zeros(shape, dtype=self.exact)
        self.nll = table.new_zeros(shape, dtype=self.exact)
        rows = min(ROWS, max(SCORES // max(len(table), 1), FEWEST_ROWS))
        self.scores = table.new_empty(min(rows, len(features)), len(table))
        need_features, need_table, self.need_scale, need_offset = needs_grad
        self.needs_grad = any(needs_grad)
        self.grad_features = torch.empty_like(features, dtype=self.exact) if need_features else None
        need_table = need_table or self.need_scale
        self.grad_table = torch.zeros_like(table, dtype=self.exact) if need_table else None
        self.grad_offset = table.new_zeros(len(table), dtype=self.exact) if need_offset else None

    def add_rows(self, rows: slice, target: Tensor) -> None:
        features = self.features[rows]
        scores = self.scores[: len(features)]
        torch.mm(features, self.table.t(), out=scores)
        for block in blocks(scores):
            exact = scores[block].to(self.exact)
            where = slice(rows.start + block.start, min(rows.start + block.stop, rows.start + len(features)))
            self._to_gradient(exact, target[block].unsqueeze(1), where)
            if scores.dtype != exact.dtype:
                scores[block].copy_(exact)
        if self.grad_features is not None:
            if self.is_half:
                torch.div(torch.mm(scores, self.table), self.unit, out=self.grad_features[rows])
            else:
                torch.mm(scores, self.table, out=self.grad_features[rows])
        if self.grad_table is not None:
            if self.is_half:  # products in half precision, their sum over chunks in float32
                self.grad_table.add_(torch.mm(scores.t(), features))
            else:
                self.grad_table.addmm_(scores.t(), features)

    def losses(self) -> OutputLoss:
        return OutputLoss(self.loss, self.nll)

    def gradients(self, table: Tensor) -> Gradients:
        """Gradients of features, table, scale and offset; the table comes as it is given to ``output_loss``."""
        if self.is_half:
            for grad in (self.grad_table, self.grad_offset):
                if grad is not None:
                    grad.div_(self.unit)
        grad_scale = None
        if self.need_scale and self.grad_table is not None and self.scale is not None:
            # Row v of the table's gradient is scale_v A_v, and dL/dscale_v = w_v . A_v.
            grad_scale = torch.empty_like(self.scale)
            for rows in blocks(table):
                torch.linalg.vecdot(self.grad_table[rows], table[rows].to(self.exact), out=grad_scale[rows])
            grad_scale /= self.scale
        return self.grad_features, self.grad_table, grad_scale, self.grad_offset

    def _add(self, total: Tensor, values: Tensor, where: slice) -> None:
        if self.reduce:
            total += values.sum()
        else:
            total[where] = values.squeeze(1)

    def _to_gradient(self, scores: Tensor, target: Tensor, where: slice) -> None:
        """Adds the losses of some rows; turns their w . h in place into their factors in the gradients of w and h."""
        vocabulary = scores.size(1)
        if self.scale is not None:
            scores.mul_(self.scale)
        if self.offset is not None:
            scores.add_(self.offset)
        target_scores = scores.gather(1, target)
        sum_of_scores = scores.sum(1, keepdim=True) if self.smoothing else 0.0
        largest = scores.amax(1, keepdim=True)
        torch.softmax(scores, 1, out=scores)
        # The largest probability, 1 / V at least, is exp(largest - log Z).
        log_partition = largest - scores.amax(1, keepdim=True).log()
        nll = log_partition - target_scores
        self._add(self.nll, nll, where)
        loss = self.confidence * nll
        if self.smoothing:
            loss = loss + self.smoothing * (vocabulary * log_partition - sum_of_scores)
        if self.z_loss:
            loss = loss + self.z_loss * log_partition.square()
        self._add(self.loss, loss, where)
        if not self.needs_grad:
            return
        # d loss / d score_v = (confidence + smoothing V + 2 z_loss log Z) p(v) - smoothing - confidence [v = target]
        unit: float | Tensor = self.unit
        if self.weights is not None:
            unit = unit * self.weights[where].unsqueeze(1)
        if self.smoothing or self.z_loss or self.is_half or self.weights is not None:
            weight = self.confidence + self.smoothing * vocabulary + 2 * self.z_loss * log_partition
            scores.mul_(weight.mul_(unit))
        if self.smoothing:
            scores.sub_(self.smoothing * unit)
        scores.scatter_add_(1, target, torch.full_like(log_partition, -self.confidence).mul_(unit))
        if self.grad_offset is not None:
            self.grad_offset += scores.sum(0)
        if self.scale is not None:
            scores.mul_(self.scale)
