"""Averaged SGD by the non-monotone trigger: the validation loss says from when on weights are averaged."""

import logging
from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.optim.lr_scheduler import FairseqLRScheduler, register_lr_scheduler
from omegaconf import II

from ..option_checks import POSITIVE, check_ranges, option

logger = logging.getLogger(__name__)


@dataclass
class NonMonotoneConfig(FairseqDataclass):
    """Options of ``non_monotone``."""

    non_monotone: int = option(
        5, "n: weights are averaged from when an epoch ends worse than the best of all but the last n", needs=POSITIVE
    )
    lr: list[float] = II("optimization.lr")


@register_lr_scheduler("non_monotone", dataclass=NonMonotoneConfig)
class NonMonotone(FairseqLRScheduler):
    """A constant learning rate, and the average of ``--store-ema`` over all weights since the trigger at update T:

        average_u = (w_{T+1} + ... + w_u) / (u - T)

    T is the end of the first epoch whose validation loss is above the best of all epochs before it but the last n, of
    epochs that write a checkpoint; with ``--maximize-best-checkpoint-metric`` one whose metric is below it. Until then
    the average is the weights. ``--ema-decay`` and ``--ema-start-update`` have no effect beside it.

    Raises:
        ValueError: if n is out of range, or for several learning rates.

    Source: Merity et al. 2018, section 3, algorithm 1 (NT-ASGD).
    """

    def __init__(self, cfg: NonMonotoneConfig, optimizer: Any):
        super().__init__(cfg, optimizer)
        check_ranges(NonMonotoneConfig, cfg)
        if len(cfg.lr) != 1:
            raise ValueError(f"--lr: needs one value with --lr-scheduler non_monotone; got {cfg.lr}. Use {cfg.lr[0]}.")
        self.losses: list[float] = []
        self.trigger: int | None = None

    def step_update(self, num_updates: int) -> float:
        self.optimizer.set_lr(self.cfg.lr[0])  # that of the command: a checkpoint may bring another
        return self.optimizer.get_lr()

    def end_epoch(self, loss: float, updates: int) -> None:
        """Takes the validation loss, or minus a metric to maximise, at an epoch's end, after so many updates."""
        earlier = self.losses[: -self.cfg.non_monotone]
        if self.trigger is None and earlier and loss > min(earlier):
            self.trigger = updates
            logger.info(f"--lr-scheduler non_monotone: weights are averaged from update {updates} on")
        self.losses.append(loss)

    def decay_of_average(self, updates: int) -> float:
        """What the average is multiplied by after so many updates: 0 until the trigger, then 1 - 1 / (u - T)."""
        return 0.0 if self.trigger is None else 1 - 1 / max(1, updates - self.trigger)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "losses": [*self.losses], "trigger": self.trigger}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # A training may have begun by another schedule.
        self.best, self.trigger = state_dict.get("best"), state_dict.get("trigger")
        self.losses = [*state_dict.get("losses", ())]
