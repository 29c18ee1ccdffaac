"""Stochastic gradient descent for tables of which an update touches a few rows."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor


def sum_of_rows(grad: Tensor) -> Tensor:
    """A sparse gradient of a table, with each row once, in rising order.

    As ``coalesce``, which sorts and takes about five times as long.

    Args:
        grad: (V, D), of rows.
    """
    if grad.is_coalesced():
        return grad
    words, rows = grad._indices()[0], grad._values()
    found = torch.bincount(words, minlength=len(grad)).nonzero().squeeze(1)
    if len(found) == len(words) and torch.equal(found, words):
        sums = rows
    else:
        place = words.new_empty(len(grad))
        place[found] = torch.arange(len(found), device=words.device)
        sums = rows.new_zeros(len(found), *rows.shape[1:]).index_add_(0, place[words], rows)
    return torch.sparse_coo_tensor(found.unsqueeze(0), sums, grad.shape, is_coalesced=True, check_invariants=False)


class RowSGD(torch.optim.Optimizer):
    """w <- w - lr * g, over the rows that g has, at a cost of those rows alone.

    Args:
        params: parameters or groups of them.
        lr: learning rate.
    """

    def __init__(self, params: Any, *, lr: float):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Updates the parameters that have a gradient, dense or sparse."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                if not grad.is_sparse:
                    parameter.add_(grad, alpha=-group["lr"])
                    continue
                grad = sum_of_rows(grad)
                parameter.index_add_(0, grad._indices()[0], grad._values().to(parameter), alpha=-group["lr"])
        return loss


@dataclass
class RowSGDConfig(FairseqDataclass):
    """Options of ``row_sgd``."""

    lr: list[float] = II("optimization.lr")


@register_optimizer("row_sgd", dataclass=RowSGDConfig)
class FairseqRowSGD(FairseqOptimizer):
    """``RowSGD`` for fairseq, whose own steps between backward pass and update this takes for sparse gradients too."""

    # What tasks read, to have models make them.
    takes_sparse_gradients = True

    def __init__(self, cfg: RowSGDConfig, params: Any):
        super().__init__(cfg)
        self._optimizer = RowSGD(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """What the command line says in place of what a checkpoint says."""
        return {"lr": self.cfg.lr[0]}

    @property
    def supports_flat_params(self) -> bool:
        """Yes: every parameter is treated alike."""
        return True

    def multiply_grads(self, c: Any) -> None:
        """Multiplies gradients by a number; of sparse ones, fairseq would multiply a copy."""
        for numbers in self._numbers():
            numbers.mul_(c.to(numbers.device) if isinstance(c, Tensor) else c)

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """fairseq's clipping, which knows no sparse gradients, of their rows."""
        found = [SimpleNamespace(grad=numbers) for numbers in self._numbers()]
        return utils.clip_grad_norm_(found, max_norm, aggregate_norm_fn) if found else torch.tensor(0.0)

    def _numbers(self) -> list[Tensor]:
        """The numbers of each gradient, to be changed in place; each row of a sparse one is summed up before."""
        found = []
        for parameter in self.params:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = sum_of_rows(parameter.grad)
            if parameter.grad is not None:
                found.append(parameter.grad._values() if parameter.grad.is_sparse else parameter.grad)
        return found
