"""Options of a loss over the vocabulary, and what it returns."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from .option_checks import Range, check_value, flag_of

WEIGHT = "a finite value, 0 or more"
RANGES = {
    "label_smoothing": Range("a value in [0, 1)", "0.1, say", at_least=0, below=1),
    "z_loss": Range(WEIGHT, "1e-4, say", at_least=0, below=math.inf),
    "augmented_loss": Range(WEIGHT, "1, say", at_least=0, below=math.inf),
    "augmented_temperature": Range("a positive, finite value", "1, say", above=0, below=math.inf),
}


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
        for name, needs in RANGES.items():
            check_value(flag_of(name), getattr(self, name), needs)
        tau = self.augmented_temperature
        if tau != 1 and not self.augmented_loss:
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
    """Raises ValueError if a loss that is printed is NaN.

    Not in training, which it would wait in: fairseq sees gradients.
    """
    if loss.isnan().any():
        raise ValueError(
            "validation: needs a loss that is a number; got nan. Use a checkpoint from before the training diverged, "
            "or no --fp16."
        )
