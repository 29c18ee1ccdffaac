"""Stochastic gradient descent for tables of which an update changes only a few rows."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor

from ..option_checks import Range, check_ranges, option
from ..precision import exact
from ..sparse_rows import sum_of_rows


def clip_rows(rows: Tensor, max_norm: float) -> Tensor:
    """Rows (n, D) clipped to the norm ``max_norm``; unchanged for ``max_norm`` 0 and for tensors that are no matrix."""
    if not max_norm or rows.dim() != 2:
        return rows
    exact_rows = exact(rows)
    return (exact_rows * (max_norm / exact_rows.norm(dim=1, keepdim=True)).clamp(max=1)).to(rows.dtype)


class RowSGD(torch.optim.Optimizer):
    """SGD with clipped rows: w_i <- w_i - lr * g_i * min(1, c / |g_i|), for the rows i with a gradient only.

    A batch sums the gradients of its pairs. If most pairs share a row, such as the root of a tree, the sum equals
    hundreds of steps at once and diverges. ``clip_row_norm`` is c, for matrices only; 0 disables it.

    ValueError if the clipping norm is negative or not finite.
    """

    def __init__(self, params: Any, *, lr: float, clip_row_norm: float = 0.0):
        check_ranges(RowSGDConfig, SimpleNamespace(clip_row_norm=clip_row_norm))
        super().__init__(params, {"lr": lr, "clip_row_norm": clip_row_norm})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if not grad.is_sparse:
                    parameter.add_(clip_rows(grad, group["clip_row_norm"]), alpha=-group["lr"])
                else:
                    grad = sum_of_rows(grad)
                    rows = clip_rows(grad._values(), group["clip_row_norm"])
                    # The rate is a factor of the rows, because `index_add_` is slow with one.
                    parameter.index_add_(0, grad._indices()[0], rows * -group["lr"])
        return loss


@dataclass
class RowSGDConfig(FairseqDataclass):
    """Options of ``row_sgd``."""

    clip_row_norm: float = option(
        0.0,
        "clip a row's gradient, summed over the batch, to this norm (not that of skip-gram's steps); 0: no clipping",
        needs=Range("a number from 0 on", "0 for no clipping", at_least=0),
    )
    lr: list[float] = II("optimization.lr")


@register_optimizer("row_sgd", dataclass=RowSGDConfig)
class FairseqRowSGD(FairseqOptimizer):
    """``RowSGD`` for fairseq; also runs fairseq's gradient scaling and clipping on sparse gradients."""

    # Tasks read this to switch models to sparse gradients.
    takes_sparse_gradients = True

    def __init__(self, cfg: RowSGDConfig, params: Any):
        super().__init__(cfg)
        self._optimizer = RowSGD(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        return {"lr": self.cfg.lr[0], "clip_row_norm": self.cfg.clip_row_norm}

    @property
    def supports_flat_params(self) -> bool:
        """False with row clipping, because a flat vector of all gradients has no rows."""
        return not self.cfg.clip_row_norm

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Takes the learning rate and ``--optimizer-overrides``; other options come from the command line."""
        for group in self.param_groups:
            group.update({"lr": state_dict["param_groups"][0]["lr"], **(optimizer_overrides or {})})

    def multiply_grads(self, c: Any) -> None:
        """Multiplies gradients by a number; fairseq would multiply a copy of sparse gradients."""
        for numbers in self._numbers():
            numbers.mul_(c.to(numbers.device) if isinstance(c, Tensor) else c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """fairseq's clipping, applied to the values of sparse gradients too."""
        gradients = [SimpleNamespace(grad=numbers) for numbers in self._numbers()]
        return utils.clip_grad_norm_(gradients, max_norm, aggregate_norm_fn)

    def _numbers(self) -> list[Tensor]:
        """The values of every gradient, to modify in place; sums repeated rows of sparse gradients first."""
        trained = [parameter for parameter in self.params if parameter.grad is not None]
        for parameter in trained:
            if parameter.grad.is_sparse:
                parameter.grad = sum_of_rows(parameter.grad)
        return [each.grad._values() if each.grad.is_sparse else each.grad for each in trained]
