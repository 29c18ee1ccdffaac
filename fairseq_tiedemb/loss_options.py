"""Options of a loss over the vocabulary, and what it returns."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class LossOptions:
    """Options of a loss over the vocabulary.

    Attributes:
        label_smoothing: e in [0, 1).
        z_loss: weight of (log Z)^2, 0 or more; it keeps logits close to log-probabilities.
        augmented_loss: weight alpha, 0 or more, of the divergence from soft targets, by a table's similarity of words.
        augmented_temperature: tau of the soft targets and of the probabilities that they are compared with.
        reduce: True for the sum over tokens, False for one loss per token.

    Raises:
        ValueError: if a number is out of range.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    reduce: bool = True
    augmented_loss: float = 0.0
    augmented_temperature: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.reduce, bool):
            raise ValueError(f"reduce: needs True for the sum or False; got {self.reduce!r}. Use True.")
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"--label-smoothing: needs a value in [0, 1); got {self.label_smoothing}. Use 0.1, say.")
        if not 0.0 <= self.z_loss < math.inf:
            raise ValueError(f"--z-loss: needs a finite value, 0 or more; got {self.z_loss}. Use 1e-4, say.")
        alpha, tau = self.augmented_loss, self.augmented_temperature
        if not 0.0 <= alpha < math.inf:
            raise ValueError(f"--augmented-loss: needs a finite value, 0 or more; got {alpha}. Use 1, say.")
        if not 0.0 < tau < math.inf:
            raise ValueError(f"--augmented-temperature: needs a positive, finite value; got {tau}. Use 1, say.")
        if tau != 1 and not alpha:
            raise ValueError(f"--augmented-temperature: needs --augmented-loss; got {tau} alone. Use both.")


PLAIN_LOSS = LossOptions()


class OutputLoss(NamedTuple):
    """Losses of the N predicted tokens in nats: sums, or shape (N,) without ``reduce``.

    Attributes:
        loss: training loss, with gradient: cross entropy with label smoothing and z-loss, or a surrogate.
        nll_loss: negative log-likelihood of the targets, detached; None if the training loss is no likelihood.
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
