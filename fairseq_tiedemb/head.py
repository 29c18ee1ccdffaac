"""The contract of heads: what turns features into the probabilities of words, and what a head declares about itself."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from ._shapes import check_target
from .losses import PLAIN_LOSS, LossOptions, OutputLoss


class Head(nn.Module):
    """A head: from features h (N, D) to the probabilities of the V words.

    A head of one's own needs ``scores`` alone. Its loss then holds all N x V scores; a head that needs fewer overrides
    ``log_prob``, one with label smoothing or z-loss also ``loss``. In evaluation the loss is the exact cross entropy;
    negative sampling alone has none.

    The rest is declared, so that criterions, scoring and exports know no head by name:

    Attributes:
        flag: option that chooses the head, for messages.
        by_target: whether the probability of one given word takes less than the scores of all words. Decoders then
            hand on features until the words are known.
        loss_is_its_own: whether a criterion that trains the scores of all words would train another model.
        has_raw_scores: whether ``raw_scores(features_ND, target_N)`` gives unnormalised scores (N,) of the target words
            at the cost of these words alone, which may stand for log-probabilities.
        not_to_be_trained: the refusal to train on, as of a checkpoint with other classes than its options name.
        refuses: the options of ``LossOptions`` that the head's loss cannot have.
        sparse_gradients: whether rows that are looked up get sparse gradients.
    """

    flag: str = "--output-layer"
    by_target: bool = False
    loss_is_its_own: bool = False
    has_raw_scores: bool = False
    not_to_be_trained: ValueError | None = None
    refuses: tuple[str, ...] = ("label_smoothing", "z_loss")
    sparse_gradients: bool = False

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of all words up to one constant a row: (*, D) -> (*, V)."""
        raise NotImplementedError(f"{type(self).__name__}: needs a method scores")

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Log-probabilities (N,) of the target words, in float32 at least."""
        scores = self.scores(features_ND)
        check_target(target_N, len(features_ND), scores.size(1))
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)
        return exact.gather(1, target_N.unsqueeze(1)).squeeze(1)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy of the target words.

        Raises:
            ValueError: for an option that the head refuses.
        """
        self.check_options(options)
        nll = -self.log_prob(features_ND, target_N)
        nll = nll.sum() if options.reduce else nll
        return OutputLoss(nll, nll.detach())

    def loss_of_sets(
        self, features_nD: Tensor, target_N: Tensor, rows_N: Tensor, options: LossOptions = PLAIN_LOSS
    ) -> OutputLoss:
        """``loss`` where several targets share a feature.

        Args:
            features_nD: h, each with one target at least.
            target_N: the words.
            rows_N: the feature of each target, not falling.
            options: of the loss.
        """
        return self.loss(features_nD.index_select(0, rows_N), target_N, options)

    def require_counts(self) -> None:
        """Checks that the head has the counts of the training text, if it needs them.

        Raises:
            ValueError: if it has not.
        """

    def check_options(self, options: LossOptions) -> None:
        """Checks that the loss can have these options.

        Raises:
            ValueError: naming the flag of the first that it cannot have.
        """
        check_unset(options, self.refuses, self.flag)

    def tally(self, target_N: Tensor) -> dict[str, Tensor]:
        """Sums over the target words that are logged beside the loss.

        Returns:
            By name: ``share:NAME``, a number of words, logged as NAME in percent of the words; ``nll:NAME``, a part of
            the loss without which a second perplexity is logged, ``ppl_NAME``.
        """
        return {}

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the biases so that words have these probabilities without features; None for biases of 0."""

    def tables(self) -> dict[str, Any]:
        """The ``SharedEmbedding`` tables that score words, by the name of their words; empty without one."""
        return {}


def check_unset(options: LossOptions, names: tuple[str, ...], where: str) -> None:
    """Checks that options of the loss are unset.

    Args:
        options: of a loss.
        names: of the options.
        where: the part that does not have them, for the message.

    Raises:
        ValueError: naming the first flag that is set.
    """
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name in names and value:
            raise ValueError(f"--{option.name.replace('_', '-')}: needs 0 with {where}; got {value}. Leave it out.")


def no_counts(flag: str) -> ValueError:
    """The refusal of a head without the counts of the training text."""
    return ValueError(
        f"{flag}: needs the counts of the training text; got a data folder without split train. Use the folder that "
        "fairseq-preprocess wrote for training."
    )
