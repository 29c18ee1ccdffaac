"""What the loss makes of a block of logits, beside cross entropy: a soft cap, soft targets, and mixtures."""

from typing import NamedTuple

import torch
from torch import Tensor

from .loss_options import LossOptions, OutputLoss


class Objective(NamedTuple):
    """What the loss is, beside its tensors with gradients."""

    options: LossOptions
    soft_cap: float | None  # c of c tanh(z / c), in place of z; None for z
    # Features whose logits y, without the output bias and the cap, give the soft targets; None without.
    similar_ND: Tensor | None
    similar_offset: Tensor | None  # offset of y (V,), or None for 0
    # Log-weights of the K softmaxes of each word, whose rows follow one another; None for one softmax.
    log_prior_NK: Tensor | None
    responsibilities_NK: Tensor | None  # filled with minus the gradient of the log-weights

    def with_weights(self, losses: OutputLoss, log_prior_NK: Tensor | None) -> OutputLoss:
        """The losses, unchanged, with the gradient of a mixture's log-weights."""
        if log_prior_NK is None or self.responsibilities_NK is None:
            return losses
        zero_NK = (log_prior_NK - log_prior_NK.detach()).masked_fill(log_prior_NK.isneginf(), 0.0)  # of a weight of 0
        towards = (self.responsibilities_NK.clone() * zero_NK).sum(1)
        return losses._replace(loss=losses.loss - (towards.sum() if self.options.reduce else towards))

    def is_plain(self) -> bool:
        """Whether there is neither a cap nor soft targets nor a mixture."""
        return self.soft_cap is None and not self.options.augmented_loss and self.log_prior_NK is None

    def components(self) -> int:
        """Number of rows of logits for each token: K with a mixture of K softmaxes, else 1."""
        return 1 if self.log_prior_NK is None else self.log_prior_NK.size(1)

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

        ``products`` are w . h of the similar features, and ``scale`` is that of y, (V,) or None.
        """
        alpha, tau = self.options.augmented_loss, self.options.augmented_temperature
        y = products if scale is None else products * scale
        y = (y if self.similar_offset is None else y + self.similar_offset) / tau
        z = scores / tau
        soft = y.softmax(1)
        divergence = (soft * (y - z)).sum(1, keepdim=True) - y.logsumexp(1, True) + z.logsumexp(1, True)
        return alpha * divergence, z.softmax(1).sub_(soft).mul_(alpha / tau)

    def mix(self, scores: Tensor, target: Tensor, where: slice, q: tuple[float, float]) -> tuple[Tensor, Tensor]:
        """Loss and negative log-likelihood (n / K, 1) of a block's words; overwrites scores (n, V) by their gradients.

        With p(v) = sum_k pi_k p_k(v) and the responsibilities r_k(v) = q(v) pi_k p_k(v) / p(v), summed r_k,

            loss = -sum_v q(v) log p(v)        d loss / d z_k(v) = r_k p_k(v) - r_k(v)        d loss / d log pi_k = -r_k

        ``target`` (n, 1) has each token K times, ``where`` is the place of the block among all rows, and ``q`` is
        the weight of the target and that of every token, of ``LossOptions.target_weights``.

        Source: Yang et al. 2018, section 2.4.
        """
        assert self.log_prior_NK is not None
        assert self.responsibilities_NK is not None
        parts, (more, each) = self.components(), q
        prior = self.log_prior_NK.view(-1, 1)[where]
        torch.log_softmax(scores, 1, out=scores)
        if each:
            joint = (scores + prior).unflatten(0, (-1, parts))
            mixed = joint.logsumexp(1)
            nll = -mixed.gather(1, target[::parts])
            loss = more * nll - each * mixed.sum(1, keepdim=True)
            of_words = torch.full_like(mixed, each).scatter_add_(1, target[::parts], torch.full_like(nll, more))
            responsible = joint.sub_(mixed.unsqueeze(1)).exp_().mul_(of_words.unsqueeze(1)).flatten(0, 1)
            total = responsible.sum(1, keepdim=True)
            scores.exp_().mul_(total).sub_(responsible)
        else:
            of_target = (scores.gather(1, target) + prior).view(-1, parts)
            loss = nll = -of_target.logsumexp(1, keepdim=True)
            total = (of_target + nll).exp().view(-1, 1)
            scores.exp_().mul_(total).scatter_add_(1, target, -total)
        self.responsibilities_NK.view(-1, 1)[where] = total
        return loss, nll
