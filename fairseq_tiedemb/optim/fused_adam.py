"""fairseq's Adam on torch's fused kernel, with one pass over each parameter."""

import ast
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor
from torch.optim.adamw import adamw

from ..option_checks import Range, check_ranges, option
from ..precision import exact_dtype


class FusedAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay on torch's fused kernel; after t steps with gradients g,

        m = b1 m + (1 - b1) g;    v = b2 v + (1 - b2) g^2
        w = (1 - lr * weight_decay) w - lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)

    Steps and state dict match fairseq's ``adam``. torch's Adam adds eps after v is divided by 1 - b2^t, so the kernel
    gets eps / sqrt(1 - b2^t). Moments are float32 for half-precision parameters. ``betas`` is (b1, b2).

    ValueError for an option out of range.

    Source: Kingma & Ba 2015, section 2, the faster form of algorithm 1; Loshchilov & Hutter 2019, algorithm 2.
    """

    # Properties that fairseq reads: half precision is cast in `step`, and all elements are treated alike.
    supports_memory_efficient_fp16 = True
    supports_flat_params = True

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float):
        check_ranges(FusedAdamConfig, SimpleNamespace(adam_eps=eps, weight_decay=weight_decay))
        super().__init__(params, {"lr": lr, "betas": _betas(betas), "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            alike: dict[tuple[int, torch.device], list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse:
                    raise RuntimeError("--optimizer fused_adam: needs dense gradients; got a sparse one. Use sgd.")
                exact, state = exact_dtype(parameter), self.state[parameter]
                if not state:
                    zeros = torch.zeros_like(parameter, dtype=exact)
                    state.update(step=0, exp_avg=zeros, exp_avg_sq=zeros.clone())
                state["step"] += 1
                if parameter.dtype == exact and parameter.is_contiguous():
                    alike[state["step"], parameter.device].append(parameter)
                else:
                    weight = parameter.to(exact).contiguous()
                    self._update(group, state["step"], [parameter], [weight])
                    parameter.copy_(weight)
            for (count, _), parameters in alike.items():
                self._update(group, count, parameters, parameters)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """torch's, with moments in float32 or more, which it would round as it does the parameters: small ones to 0."""
        super().load_state_dict(state_dict)
        names = [name for group in state_dict["param_groups"] for name in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for name, parameter in zip(names, parameters, strict=True):
            saved, exact = state_dict["state"].get(name, {}), exact_dtype(parameter)
            for moment in {"exp_avg", "exp_avg_sq"} & saved.keys():
                self.state[parameter][moment] = saved[moment].to(parameter.device, exact, copy=True)

    def _update(self, group: dict[str, Any], count: int, parameters: list[Tensor], weights: list[Tensor]) -> None:
        """Applies step number ``count`` to ``weights``: the parameters, or contiguous copies in float32 at least."""
        states, grads = [self.state[parameter] for parameter in parameters], []
        # The CPU kernel assumes contiguous tensors, and silently gives wrong numbers for others.
        for parameter, state, weight in zip(parameters, states, weights, strict=True):
            grads.append(parameter.grad.to(weight).contiguous())  # type: ignore[union-attr]
            for moment in ("exp_avg", "exp_avg_sq"):  # fairseq's memory-efficient wrapper puts back the file's
                state[moment] = state[moment].to(weight).contiguous()
                if state[moment].shape != weight.shape:  # which the kernel does not check
                    needs, got = f"moments of shape {tuple(weight.shape)}", tuple(state[moment].shape)
                    raise ValueError(f"optimizer: needs {needs}; got {got}. Use --reset-optimizer, or its own state.")
        means, squares = ([state[moment] for state in states] for moment in ("exp_avg", "exp_avg_sq"))
        # One step counter per parameter, which the kernel increments.
        steps = list(torch.full((len(weights),), count - 1.0, device=weights[0].device))
        beta1, beta2 = group["betas"]
        numbers = {"lr": group["lr"], "beta1": beta1, "beta2": beta2, "weight_decay": group["weight_decay"]}
        numbers["eps"] = group["eps"] / math.sqrt(1 - beta2**count)
        adamw(weights, grads, means, squares, [], steps, fused=True, amsgrad=False, maximize=False, **numbers)


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """Options of ``fused_adam``, the same as fairseq's ``adam``."""

    adam_betas: Any = option((0.9, 0.999), "betas for Adam optimizer")
    adam_eps: float = option(1e-8, "epsilon for Adam optimizer", needs=Range("a number above 0", "1e-8, say", above=0))
    weight_decay: float = option(0.0, "weight decay", needs=Range("a number from 0 on", "0.01, say", at_least=0))
    lr: list[float] = II("optimization.lr")


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FairseqFusedAdam(FairseqOptimizer):
    """``FusedAdam`` for fairseq."""

    def __init__(self, cfg: FusedAdamConfig, params: Any):
        super().__init__(cfg)
        self._optimizer = FusedAdam(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        cfg, betas = self.cfg, _betas(self.cfg.adam_betas)
        return {"lr": cfg.lr[0], "betas": betas, "eps": cfg.adam_eps, "weight_decay": cfg.weight_decay}


def _betas(value: Any) -> tuple[float, float]:
    """Parses the betas, two numbers or, from the command line, text."""
    try:
        beta1, beta2 = map(float, ast.literal_eval(value) if isinstance(value, str) else value)
    except (SyntaxError, TypeError, ValueError):
        beta1 = beta2 = math.nan
    if not (0.0 <= beta1 < 1.0 and 0.0 <= beta2 < 1.0):
        raise ValueError(f"--adam-betas: needs two numbers in [0, 1); got {value}. Use '(0.9, 0.98)', say.")
    return beta1, beta2
