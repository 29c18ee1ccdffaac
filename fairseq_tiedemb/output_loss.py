"""From features and a table to the loss, without ever holding the N x V scores."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Rows of scores held at a time. 256 to 1,024 rows cost the same within noise; fewer make thin matrix products.
ROWS = 512
# Elements of a block that is passed over several times: a megabyte of float32, which stays in a CPU's cache. Elsewhere
# the number of kernels is what costs, and blocks only bound memory.
CACHED_ELEMENTS = 2**18
ELEMENTS = 2**25
# Gradients of scores are brought below this, from below 1, before they are rounded to half precision: fp16 has nothing
# below 6e-8, and their products with features stay below its largest number.
HALF_SCALE = 128.0

# Squared norms (V,) -> scale and offset (V,) of the words' scores; None for 1 and 0.
NormTerms = Callable[[Tensor], tuple[Tensor | None, Tensor | None]]


class OutputLoss(NamedTuple):
    """Sums over the N predicted words, in nats.

    Attributes:
        loss: label-smoothed cross entropy and z-loss, the one with a gradient.
        nll_loss: negative log-likelihood of the targets, detached.
    """

    loss: Tensor
    nll_loss: Tensor


def output_loss(
    features_ND: Tensor,
    table_VD: Tensor,
    target_N: Tensor,
    *,
    norm_terms: NormTerms | None = None,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> OutputLoss:
    """Cross entropy, summed over words, of the scores z_v = scale(n_v) (w_v . h) + offset(n_v) + bias_v.

    n_v is ||w_v||^2. With label smoothing as fairseq defines it, e_i = e / (V - 1), and log Z = log sum_v exp z_v:

        loss = sum_n  -(1 - e - e_i) log p(target_n)  -  e_i sum_v log p_n(v)  +  z_loss (log Z_n)^2

    The gradients are computed in the forward pass, ``ROWS`` rows of scores at a time, so memory is that of the table's
    gradient and not of N x V. Arithmetic on scores is in float32 (float64 for float64 input); the products are in the
    precision of the table, or that of autocast.

    Args:
        features_ND: h, one row per word to predict.
        table_VD: W.
        target_N: the right words, in [0, V).
        norm_terms: n (V,) -> (scale (V,), offset (V,)), elementwise, finite with finite derivatives for every n >= 0,
            which comes in float32 at least; None for scale 1 and offset 0.
        bias: (V,), or None for 0.
        label_smoothing: e in [0, 1).
        z_loss: weight of (log Z)^2, 0 or more, which keeps scores close to log-probabilities.

    Raises:
        ValueError: if ``label_smoothing`` or ``z_loss`` is out of range.
        RuntimeError: in the backward pass, if second derivatives are asked for.

    Source: z-loss: Devlin et al. 2014 (self-normalised networks); Chowdhery et al. 2022 (PaLM), section 5.
    """
    check_label_smoothing(label_smoothing)
    check_z_loss(z_loss)
    inputs: tuple[Tensor | None, ...] = (features_ND, table_VD, bias)
    if not torch.is_grad_enabled():  # which a Function's forward pass cannot see
        inputs = tuple(None if each is None else each.detach() for each in inputs)
    return OutputLoss(*_OutputLoss.apply(*inputs, target_N, norm_terms, label_smoothing, z_loss))


def check_label_smoothing(label_smoothing: float) -> None:
    """Raises ValueError if label smoothing is out of range."""
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"--label-smoothing: needs a value in [0, 1); got {label_smoothing}. Use 0.1, say.")


def check_z_loss(z_loss: float) -> None:
    """Raises ValueError if the weight of the z-loss is out of range."""
    if not 0.0 <= z_loss < math.inf:
        raise ValueError(f"--z-loss: needs a finite value, 0 or more; got {z_loss}. Use 1e-4, say.")


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        table: Tensor,
        bias: Tensor | None,
        target: Tensor,
        norm_terms: NormTerms | None,
        label_smoothing: float,
        z_loss: float,
    ) -> tuple[Tensor, Tensor]:
        device = features.device.type
        autocast = torch.is_autocast_enabled(device) and table.dtype == torch.float32
        dtype = torch.get_autocast_dtype(device) if autocast else table.dtype
        needs_grad = ctx.needs_input_grad[:3]
        with torch.autocast(device, enabled=False):
            terms = _WordTerms(table, bias, norm_terms, need_slopes=needs_grad[1])
            sums = _ChunkedLoss(features.to(dtype), table.to(dtype), terms, label_smoothing, z_loss, needs_grad)
            chunks = max(1, math.ceil(len(target) / ROWS))  # of equal size
            for rows in _slices(len(target), math.ceil(len(target) / chunks)):
                sums.add_rows(rows, target[rows])
            grads = sums.gradients()
            if grads[1] is not None:
                terms.add_norm_gradient(grads[1], table, grads[2])
        ctx.save_for_backward(*(grad if need else None for grad, need in zip(grads, needs_grad, strict=True)))
        ctx.dtypes = [None if each is None else each.dtype for each in (features, table, bias)]
        ctx.mark_non_differentiable(sums.nll)
        return sums.loss, sums.nll

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "output_loss: needs a backward pass without create_graph, having no second derivatives; got one with "
                "create_graph=True. Use F.cross_entropy of the scores."
            )
        # Without loss scaling the factor is 1, and the product would be one more pass over V x D.
        is_one = not grad_loss.is_cuda and grad_loss.item() == 1.0

        def scaled(grad: Tensor, dtype: torch.dtype) -> Tensor:
            # To half precision only now, when fp16's loss scaling has lifted small gradients into its range.
            if is_one:
                return grad.to(dtype)
            return torch.mul(grad, grad_loss, out=torch.empty_like(grad, dtype=dtype))

        saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        return *(None if grad is None else scaled(grad, dtype) for grad, dtype in saved), None, None, None, None


class _WordTerms:
    """Scale and offset (V,) of the words' scores, and the way of their gradients through the norms to the table."""

    def __init__(self, table: Tensor, bias: Tensor | None, norm_terms: NormTerms | None, *, need_slopes: bool):
        self.exact = torch.promote_types(table.dtype, torch.float32)
        self.scale = self.offset = self.scale_slope = self.offset_slope = None
        if norm_terms is not None:
            squared_norms = self._squared_norms(table)
            self.scale, self.offset = norm_terms(squared_norms)
            if need_slopes:
                self.scale_slope, self.offset_slope = _slopes(norm_terms, squared_norms)
        if bias is not None:
            self.offset = bias.to(self.exact) if self.offset is None else self.offset + bias

    def _squared_norms(self, table: Tensor) -> Tensor:
        norms = table.new_empty(len(table), dtype=self.exact)
        for rows in _blocks(table):
            torch.linalg.vector_norm(table[rows].to(self.exact), dim=1, out=norms[rows])
        return norms.square_()

    def add_norm_gradient(self, grad_table: Tensor, table: Tensor, grad_offset: Tensor | None) -> None:
        """Adds dL/dn_v * 2 w_v to row v; dL/dn_v = dL/dscale_v * dscale_v/dn_v + dL/doffset_v * doffset_v/dn_v."""
        by_norm = None if self.offset_slope is None or grad_offset is None else self.offset_slope * grad_offset
        # Row v is scale_v A_v so far, and dL/dscale_v = w_v . A_v.
        by_scale = None if self.scale_slope is None or self.scale is None else self.scale_slope / self.scale
        if by_norm is None and by_scale is None:
            return
        for rows in _blocks(table):
            grad, words = grad_table[rows], table[rows].to(self.exact)
            factor = torch.zeros_like(words[:, 0]) if by_norm is None else by_norm[rows]
            if by_scale is not None:
                factor = factor.addcmul((grad * words).sum(1), by_scale[rows])
            grad.addcmul_(words, factor.unsqueeze(1), value=2)


class _ChunkedLoss:
    """Losses and gradients of the rows seen so far."""

    def __init__(
        self,
        features: Tensor,
        table: Tensor,
        terms: _WordTerms,
        label_smoothing: float,
        z_loss: float,
        needs_grad: tuple[bool, bool, bool],
    ):
        self.features, self.table, self.terms = features, table, terms
        self.smoothing = label_smoothing / (len(table) - 1)
        self.confidence = 1.0 - label_smoothing - self.smoothing
        self.z_loss = z_loss
        self.is_half = terms.exact != table.dtype
        # What gradients are multiplied by until they are in float32.
        self.unit: float | Tensor = 1.0
        if self.is_half:
            self.unit = HALF_SCALE if terms.scale is None else HALF_SCALE / terms.scale.amax().clamp(min=1.0)
        self.loss = table.new_zeros((), dtype=terms.exact)
        self.nll = table.new_zeros((), dtype=terms.exact)
        self.scores = table.new_empty(min(ROWS, len(features)), len(table))
        need_features, need_table, need_bias = needs_grad
        need_offset = need_bias or (need_table and terms.offset_slope is not None)
        self.needs_grad = any(needs_grad)
        self.grad_features = torch.empty_like(features, dtype=terms.exact) if need_features else None
        self.grad_table = torch.zeros_like(table, dtype=terms.exact) if need_table else None
        self.grad_offset = table.new_zeros(len(table), dtype=terms.exact) if need_offset else None

    def add_rows(self, rows: slice, target: Tensor) -> None:
        features = self.features[rows]
        scores = self.scores[: len(features)]
        torch.mm(features, self.table.t(), out=scores)
        for block in _blocks(scores):
            exact = scores[block].to(self.terms.exact)
            self._to_gradient(exact, target[block].unsqueeze(1))
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

    def gradients(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Gradients of features, table (without what comes through the norms) and offset."""
        if self.is_half:
            for grad in (self.grad_table, self.grad_offset):
                if grad is not None:
                    grad.div_(self.unit)
        return self.grad_features, self.grad_table, self.grad_offset

    def _to_gradient(self, scores: Tensor, target: Tensor) -> None:
        """Adds the losses of some rows; turns their w . h in place into their factors in the gradients of w and h."""
        scale, offset, vocabulary = self.terms.scale, self.terms.offset, scores.size(1)
        if scale is not None:
            scores.mul_(scale)
        if offset is not None:
            scores.add_(offset)
        target_scores = scores.gather(1, target)
        all_scores = scores.sum() if self.smoothing else 0.0
        largest = scores.amax(1, keepdim=True)
        torch.softmax(scores, 1, out=scores)
        # The largest probability, 1 / V at least, is exp(largest - log Z).
        log_partition = largest - scores.amax(1, keepdim=True).log()
        nll = (log_partition - target_scores).sum()
        self.nll += nll
        self.loss += self.confidence * nll + self.smoothing * (vocabulary * log_partition.sum() - all_scores)
        if self.z_loss:
            self.loss += self.z_loss * log_partition.square().sum()
        if not self.needs_grad:
            return
        # d loss / d score_v = (confidence + smoothing V + 2 z_loss log Z) p(v) - smoothing - confidence [v = target]
        if self.smoothing or self.z_loss or self.is_half:
            weight = self.confidence + self.smoothing * vocabulary + 2 * self.z_loss * log_partition
            scores.mul_(weight.mul_(self.unit))
        if self.smoothing:
            scores.sub_(self.smoothing * self.unit)
        scores.scatter_add_(1, target, torch.full_like(log_partition, -self.confidence).mul_(self.unit))
        if self.grad_offset is not None:
            self.grad_offset += scores.sum(0)
        if scale is not None:
            scores.mul_(scale)


def _slopes(norm_terms: NormTerms, squared_norms: Tensor) -> list[Tensor | None]:
    """Derivatives of scale and offset: of an elementwise function, the gradient of the sum."""
    with torch.enable_grad():
        variable = squared_norms.detach().requires_grad_()
        terms = norm_terms(variable)
        return [None if term is None else torch.autograd.grad(term.sum(), variable)[0] for term in terms]


def _blocks(matrix: Tensor) -> Iterator[slice]:
    elements = CACHED_ELEMENTS if matrix.device.type == "cpu" else ELEMENTS
    return _slices(len(matrix), max(1, elements // matrix.size(1)))


def _slices(length: int, size: int) -> Iterator[slice]:
    """Consecutive slices of so many rows; an empty one for no rows at all."""
    return (slice(first, first + size) for first in range(0, max(1, length), max(1, size)))
