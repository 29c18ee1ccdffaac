"""Options of a loss over the vocabulary, and what it returns."""

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from .option_checks import Range, check_value, flag_of, option

WEIGHT = "a finite value, 0 or more"


@dataclass(frozen=True)
class LossOptions:
    """Options of a loss over the vocabulary, which are flags of the criterion; see ``output_loss`` for its equation.

    Raises:
        ValueError: if a number is out of range.
    """

    label_smoothing: float = option(
        0.0,
        "epsilon in [0, 1), 0 for none; for --output-layer softmax, mixture and joint",
        needs=Range("a value in [0, 1)", "0.1, say", at_least=0, below=1),
    )
    z_loss: float = option(
        0.0,
        "weight of (log Z)^2 per word (Z: normaliser), such as 1e-4; for --output-layer softmax, joint, short-list",
        needs=Range(WEIGHT, "1e-4, say", at_least=0),
    )
    reduce: bool = True  # the sum over tokens; False for one loss per token
    augmented_loss: float = option(
        0.0,
        "alpha of the loss alpha KL(soft targets || probabilities), where soft targets are the softmax of "
        "the tied table's scores of the target word's own vector (Inan et al. 2017); for --output-layer softmax",
        needs=Range(WEIGHT, "1, say", at_least=0),
    )
    augmented_temperature: float = option(
        1.0,
        "tau by which both logits of --augmented-loss are divided",
        needs=Range("a positive, finite value", "1, say", above=0),
    )

    def __post_init__(self) -> None:
        if not isinstance(self.reduce, bool):
            raise ValueError(f"reduce: needs True for the sum or False; got {self.reduce!r}. Use True.")
        for name, needs in RANGES.items():
            check_value(flag_of(name), getattr(self, name), needs)
        tau = self.augmented_temperature
        if tau != 1 and not self.augmented_loss:
            raise ValueError(f"--augmented-temperature: needs --augmented-loss; got {tau} alone. Use both.")

    def target_weights(self, size: int) -> tuple[float, float]:
        """Weights of -log p(target) and of every -log p(v) in the loss, with V tokens (``size``)."""
        # With V = 1 no other token can receive smoothed probability.
        each = self.label_smoothing / max(size - 1, 1)
        return 1.0 - self.label_smoothing - each, each

    def cross_entropy(self, size: int, log_z: Tensor, of_target: Tensor, total: Tensor) -> tuple[Tensor, ...]:
        """Training loss and negative log-likelihood from log Z, the target's logit, and the sum of all V logits.

        The third result is a in d loss / d z_v = a p(v) - b - c [v = target], where ``target_weights`` gives c and b.
        """
        confidence, each = self.target_weights(size)
        nll = log_z - of_target
        loss, weight = confidence * nll, torch.full_like(log_z, confidence + each * size)
        if each:
            loss = loss + each * (size * log_z - total)
        if self.z_loss:
            loss, weight = loss + self.z_loss * log_z.square(), weight + 2 * self.z_loss * log_z
        return loss, nll, weight


# Not `check_ranges`: a compiler cannot look at fields.
RANGES = {each.name: each.metadata["needs"] for each in fields(LossOptions) if "needs" in each.metadata}


class OutputLoss(NamedTuple):
    """Losses of the N predicted tokens in nats: sums, or shape (N,) without ``reduce``.

    Attributes:
        loss: training loss, with gradient: cross entropy with label smoothing and z-loss, or a surrogate.
        nll_loss: negative log-likelihood of the targets, detached; None if the training loss is no likelihood.
    """

    loss: Tensor
    nll_loss: Tensor | None


PLAIN_LOSS = LossOptions()


def check_unset(options: LossOptions, names: tuple[str, ...], where: str) -> None:
    """Raises ValueError for the first of the named options that is set.

    ``where`` names the part without these options in the message.
    """
    for name, value in vars(options).items():
        if name in names and value:
            raise ValueError(f"{flag_of(name)}: needs 0 with {where}; got {value}. Leave it out.")


def check_evaluated(loss: Tensor) -> None:
    """Raises ValueError if a loss that is printed is NaN.

    Not called in training: it would wait for a GPU, and fairseq checks gradients there.
    """
    if loss.isnan().any():
        use = "a checkpoint from before the training diverged, or no --fp16"
        raise ValueError(f"validation: needs a loss that is a number; got nan. Use {use}.")
