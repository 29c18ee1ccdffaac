"""Stochastic gradient descent with decoupled weight decay."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from ..option_checks import Range, check_ranges, option

FRACTION = Range("a number in [0, 1)", "0, say", at_least=0, below=1)


class DecoupledSGD(torch.optim.SGD):
    """SGD with momentum whose weight decay does not depend on the learning rate.

        w <- w - lr * g;    w <- (1 - decay) w

    ValueError if momentum or decay is not in [0, 1).

    Source: yaringal/BayesianRNN LM_code/main_new_dropout_SOTA.lua, where Gal & Ghahramani (2016) subtract weight decay
    after the step; Loshchilov & Hutter 2019, algorithm 1, with a schedule of 1 for the decay.
    """

    def __init__(self, params: Any, *, lr: float, momentum: float, decay: float):
        check_ranges(SGDWConfig, SimpleNamespace(momentum=momentum, weight_decay=decay))
        super().__init__(params, lr=lr, momentum=momentum)
        self.defaults["decay"] = decay  # of groups to come
        for group in self.param_groups:
            group.setdefault("decay", decay)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        for group in self.param_groups:
            decay = group.get("decay", self.defaults["decay"])  # a state of torch's SGD has none
            for parameter in group["params"]:
                if parameter.grad is not None and decay:
                    parameter.mul_(1.0 - decay)
        return loss


@dataclass
class SGDWConfig(FairseqDataclass):
    """Options of ``sgdw``."""

    momentum: float = option(0.0, "momentum factor", needs=FRACTION)
    weight_decay: float = option(
        0.0, "fraction taken off every parameter at a step, independent of the learning rate", needs=FRACTION
    )
    lr: list[float] = II("optimization.lr")


@register_optimizer("sgdw", dataclass=SGDWConfig)
class FairseqSGDW(FairseqOptimizer):
    """``DecoupledSGD`` for fairseq."""

    def __init__(self, cfg: SGDWConfig, params: Any):
        super().__init__(cfg)
        self._optimizer = DecoupledSGD(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        return {"lr": self.cfg.lr[0], "momentum": self.cfg.momentum, "decay": self.cfg.weight_decay}

    supports_flat_params = True
