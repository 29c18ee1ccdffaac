"""From features and a table to the loss, without ever holding the N x V scores."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Rows of scores held at a time. 256 to 1,024 rows cost the same within noise; fewer make thin matrix products.
ROWS = 512
# Probabilities are multiplied by this before they are rounded to half precision: fp16 has nothing below 6e-8, and their
# products with features stay below its largest number.
HALF_SCALE = 128.0


class OutputLoss(NamedTuple):
    """Sums over the N predicted words, in nats.

    Attributes:
        loss: label-smoothed cross entropy, the one with a gradient.
        nll_loss: negative log-likelihood of the targets, detached.
    """

    loss: Tensor
    nll_loss: Tensor


def output_loss(
    features_ND: Tensor,
    table_VD: Tensor,
    target_N: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> OutputLoss:
    """Cross entropy of the scores z = scale * (h W^T) + offset, summed over words.

    With label smoothing as fairseq defines it, e_i = e / (V - 1):

        loss = sum_n  -(1 - e - e_i) * log p(target_n)  -  e_i * sum_v log p_n(v)

    The gradients are computed in the forward pass, ``ROWS`` rows of scores at a time, so memory is that of the table's
    gradient and not of N x V. Arithmetic on scores is in float32 (float64 for float64 input).

    Args:
        features_ND: h, one row per word to predict.
        table_VD: W.
        target_N: the right words, in [0, V).
        scale: factor of each word's score, (V,), or None for 1.
        offset: term of each word's score, (V,), or None for 0.
        label_smoothing: e in [0, 1).

    Raises:
        ValueError: if ``label_smoothing`` is out of range.
    """
    check_label_smoothing(label_smoothing)
    return OutputLoss(*_OutputLoss.apply(features_ND, table_VD, scale, offset, target_N, label_smoothing))


def check_label_smoothing(label_smoothing: float) -> None:
    """Raises ValueError if label smoothing is out of range."""
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"--label-smoothing: needs a value in [0, 1); got {label_smoothing}. Use 0.1, say.")


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        table: Tensor,
        scale: Tensor | None,
        offset: Tensor | None,
        target: Tensor,
        label_smoothing: float,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(features.device.type, enabled=False):
            parts = _ChunkedLoss(features.to(table.dtype), table, scale, offset, any(ctx.needs_input_grad))
            for first in range(0, len(target), ROWS):
                parts.add_rows(slice(first, first + ROWS), target[first : first + ROWS], label_smoothing)
        ctx.dtypes = [None if each is None else each.dtype for each in (features, table, scale, offset)]
        ctx.save_for_backward(*(parts.gradients() if any(ctx.needs_input_grad) else ()))
        ctx.mark_non_differentiable(parts.nll)
        return parts.loss, parts.nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grads = ctx.saved_tensors
        # Without loss scaling the factor is 1, and the product would be one more pass over V x D.
        if grad_loss.is_cuda or grad_loss.item() != 1.0:
            grads = tuple(None if grad is None else grad * grad_loss for grad in grads)
        # To half precision only now, when fp16's loss scaling has lifted small gradients into its range.
        grads = tuple(None if each is None else each.to(dtype) for each, dtype in zip(grads, ctx.dtypes, strict=True))
        return *grads, None, None


class _ChunkedLoss:
    """Losses and gradients of the rows seen so far."""

    def __init__(self, features: Tensor, table: Tensor, scale: Tensor | None, offset: Tensor | None, want_grad: bool):
        self.features, self.table, self.want_grad = features, table, want_grad
        self.exact = table.dtype if table.dtype == torch.float64 else torch.float32
        self.scale = None if scale is None else scale.to(self.exact)
        self.offset = None if offset is None else offset.to(self.exact)
        self.loss = table.new_zeros((), dtype=self.exact)
        self.nll = table.new_zeros((), dtype=self.exact)
        if want_grad:
            self.grad_features = torch.empty_like(features, dtype=self.exact)
            self.grad_table = torch.zeros_like(table, dtype=self.exact)
            self.grad_offset = table.new_zeros(len(table), dtype=self.exact)

    def add_rows(self, rows: slice, target: Tensor, label_smoothing: float) -> None:
        features, vocabulary = self.features[rows], len(self.table)
        scores = self._scores(features)
        smoothing = label_smoothing / (vocabulary - 1)
        confidence = 1.0 - label_smoothing - smoothing
        target = target.unsqueeze(1)
        target_scores = scores.gather(1, target).sum()
        all_scores = scores.sum() if smoothing else 0.0
        # softmax in place: from here on `scores` holds exp(score - max)
        largest = scores.amax(1, keepdim=True)
        partition = scores.sub_(largest).exp_().sum(1, keepdim=True)
        log_partition = (partition.log() + largest).sum()
        nll = log_partition - target_scores
        self.nll += nll
        self.loss += confidence * nll + smoothing * (vocabulary * log_partition - all_scores)
        if not self.want_grad:
            return
        # d loss / d score_v = (confidence + smoothing V) p(v) - smoothing - confidence [v = target]
        grad_scores = scores.mul_((confidence + smoothing * vocabulary) / partition)
        if smoothing:
            grad_scores.sub_(smoothing)
        grad_scores.scatter_add_(1, target, grad_scores.new_full(target.shape, -confidence))
        self._add_gradients(rows, features, grad_scores)

    def _scores(self, features: Tensor) -> Tensor:
        if self.scale is None and self.offset is not None and self.exact == self.table.dtype:
            return torch.addmm(self.offset, features, self.table.t())
        scores = torch.mm(features, self.table.t()).to(self.exact)
        if self.scale is not None:
            scores.mul_(self.scale)
        return scores if self.offset is None else scores.add_(self.offset)

    def _add_gradients(self, rows: slice, features: Tensor, grad_scores: Tensor) -> None:
        if self.offset is not None:
            self.grad_offset += grad_scores.sum(0)
        if self.scale is not None:
            grad_scores.mul_(self.scale)
        if self.exact == self.table.dtype:
            torch.mm(grad_scores, self.table, out=self.grad_features[rows])
            self.grad_table.addmm_(grad_scores.t(), features)
        else:  # products in half precision, their sum over chunks in float32
            grad = (grad_scores * HALF_SCALE).to(self.table.dtype)
            self.grad_features[rows] = torch.mm(grad, self.table) / HALF_SCALE
            self.grad_table.add_(torch.mm(grad.t(), features), alpha=1 / HALF_SCALE)

    def gradients(self) -> tuple[Tensor | None, ...]:
        """Gradients of features, table, scale and offset."""
        # d loss / d scale_v = w_v . A_v, where the table's gradient is scale_v A_v
        grad_scale = None
        if self.scale is not None:
            grad_scale = torch.linalg.vecdot(self.grad_table, self.table.to(self.exact)) / self.scale
        return self.grad_features, self.grad_table, grad_scale, None if self.offset is None else self.grad_offset
