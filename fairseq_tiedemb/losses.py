"""Cross entropy from features and a table, without the N x V logits in memory."""

from typing import Any

import torch
from torch import Tensor

from ._shapes import check_loss_inputs
from .loss_by_rows import holds, loss_by_rows
from .loss_by_words import Gradients, Logits, loss_by_words
from .loss_options import PLAIN_LOSS as PLAIN_LOSS
from .loss_options import LossOptions as LossOptions
from .loss_options import OutputLoss as OutputLoss
from .loss_options import check_unset
from .objective import Objective
from .precision import exact_dtype

# Products in these dtypes, on a CPU, go by words where fewer rows than this fit into memory at a time; float32 would
# take 1.25 times as long. V = 250,000, D = 128: 4 MB beyond the gradient instead of 309, in 0.9 of the time.
BY_WORDS, BY_WORDS_BELOW = {torch.bfloat16}, 128


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

    The forward pass also computes the gradients, from few rows of logits at a time, 512 at most on a CPU. Memory is
    therefore that of the table's gradient, not N x V. Without ``reduce``, and in a second backward pass, they are
    computed again.
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


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, table: Tensor, scale: Any, offset: Any, target: Tensor, objective: Objective
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
        is_one = grad_loss.device.type == "cpu" and not torch.compiler.is_compiling() and grad_loss.item() == 1.0

        def scaled(grad: Tensor, dtype: torch.dtype) -> Tensor:
            # Rounded to half precision after fp16's loss scaling, which lifts small gradients into its range.
            exact = grad.to(torch.promote_types(grad.dtype, dtype))
            return (exact if is_one else exact.mul_(grad_loss)).to(dtype)

        pairs = zip(grads, inputs[:4], strict=True)
        return *(None if grad is None else scaled(grad, tensor.dtype) for grad, tensor in pairs), None, None


def _losses_and_gradients(
    inputs: Any, objective: Objective, product_dtype: torch.dtype, needs_grad: tuple[bool, ...], weights: Tensor | None
) -> tuple[OutputLoss, Gradients]:
    """The losses, by rows or by words, of ``inputs``: features, table, scale, offset and target."""
    features, table, *_, target = inputs
    logits = Logits(features.to(product_dtype), *inputs[1:])
    with torch.autocast("cpu" if features.is_meta else features.device.type, enabled=False):
        few = not holds(min(len(target), BY_WORDS_BELOW), len(table))
        if few and product_dtype in BY_WORDS and not table.is_cuda and objective.is_plain():
            return loss_by_words(logits, objective.options, needs_grad, weights)
        return loss_by_rows(logits, objective, needs_grad, weights)
