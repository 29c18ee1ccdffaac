"""What the loss makes of a block of logits, beside cross entropy: a soft cap, and soft targets."""

from typing import NamedTuple

import torch
from torch import Tensor

from .loss_options import LossOptions


class Objective(NamedTuple):
    """What the loss is, beside its tensors with gradients.

    Attributes:
        options: options of the loss.
        soft_cap: c of c tanh(z / c), in place of z; None for z.
        similar_ND: features whose logits y, without the output bias and the cap, give the soft targets; None without.
        similar_offset: offset of y (V,), or None for 0.
    """

    options: LossOptions
    soft_cap: float | None = None
    similar_ND: Tensor | None = None
    similar_offset: Tensor | None = None

    def cap(self, scores: Tensor) -> Tensor | None:
        """Overwrites scores z by c tanh(z / c), but for -inf, and returns the derivative; None without a cap."""
        if self.soft_cap is None:
            return None
        never = scores.isneginf()
        scores.div_(self.soft_cap).tanh_()
        slope = 1 - scores.square()
        scores.mul_(self.soft_cap).masked_fill_(never, -torch.inf)
        return slope

    def divergence(self, scores: Tensor, products: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor]:
        """alpha KL(softmax(y / tau) || softmax(z / tau)) of each row (n, 1), and its gradient of the scores z (n, V).

        Args:
            scores: z.
            products: w . h of the similar features.
            scale: of y, (V,) or None.

        Source: Inan et al. 2017, section 4 (soft targets); they get no gradient here.
        """
        alpha, tau = self.options.augmented_loss, self.options.augmented_temperature
        y = products if scale is None else products * scale
        y = (y if self.similar_offset is None else y + self.similar_offset) / tau
        z = scores / tau
        soft = y.softmax(1)
        divergence = (soft * (y - z)).sum(1, keepdim=True) - y.logsumexp(1, True) + z.logsumexp(1, True)
        return alpha * divergence, z.softmax(1).sub_(soft).mul_(alpha / tau)
