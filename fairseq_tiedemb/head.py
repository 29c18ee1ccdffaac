"""The contract of output heads: from features to token probabilities, and what a head declares about itself."""

from typing import Any

from torch import Tensor, nn

from ._shapes import check_pairs
from .loss_options import check_unset
from .losses import PLAIN_LOSS, LossOptions, OutputLoss
from .precision import exact


class Head(nn.Module):
    """Base class of output heads, which turn features h (N, D) into the probabilities of V tokens.

    A subclass must have ``scores``. By default the loss then holds all N x V logits. A head that needs fewer overrides
    ``log_prob``, and a head with label smoothing or z-loss also ``loss``. In evaluation the loss is the exact cross
    entropy; only negative sampling has none.

    Criterions, scoring and exports know no head by name. They read what it declares:

    Attributes:
        flag: option that selects the head, for messages.
        by_target: whether the probability of a given token is cheaper than the logits of the vocabulary. Decoders then
            return features until the targets are known.
        loss_is_its_own: whether a criterion that trains on ``scores``, as fairseq's do, would train another objective.
        has_raw_scores: whether ``raw_scores(features_ND, target_N)`` returns the logits (N,) of the targets alone;
            those that z-loss or nce trains approximate log-probabilities.
        not_to_be_trained: error that training raises, say after a checkpoint with other classes; or None.
        scores_every_token: whether a token that the training text lacks, such as ``<s>``, has a probability.
        refuses: fields of ``LossOptions`` that the loss does not support.
        sparse_gradients: whether looked-up rows get sparse gradients.
    """

    flag: str = "--output-layer"
    by_target: bool = False
    loss_is_its_own: bool = False
    has_raw_scores: bool = False
    not_to_be_trained: ValueError | None = None
    scores_every_token: bool = True
    refuses: tuple[str, ...] = ("label_smoothing", "z_loss", "augmented_loss")
    sparse_gradients: bool = False
    table: Any

    def __init__(self, table: Any = None):
        """A head over the ``table`` of another module, or without one."""
        super().__init__()
        if table is not None:
            self.__dict__["table"] = table  # hidden from torch's registry, since its owner saves it

    def scores(self, features: Tensor) -> Tensor:
        """Log-probabilities of all tokens up to a constant per row: (*, D) -> (*, V)."""
        raise NotImplementedError(f"{type(self).__name__}: needs a method scores")

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Log-probabilities of the target tokens (N,), in float32 or more precise."""
        scores = self.scores(features_ND)
        check_pairs(features_ND, target_N, scores.size(1))
        return exact(scores).log_softmax(-1).gather(1, target_N.unsqueeze(1)).squeeze(1)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy of the target tokens; raises ValueError for an option that the head refuses."""
        self.check_options(options)
        nll = -self.log_prob(features_ND, target_N)
        nll = nll.sum() if options.reduce else nll
        return OutputLoss(nll, nll.detach())

    def loss_of_sets(
        self, features_nD: Tensor, target_N: Tensor, rows_N: Tensor, options: LossOptions = PLAIN_LOSS
    ) -> OutputLoss:
        """``loss`` with several targets per feature vector.

        ``rows_N`` has the row of ``features_nD`` for each target; each feature vector has a target.
        """
        return self.loss(features_nD.index_select(0, rows_N), target_N, options)

    def require_counts(self) -> None:
        """Raises ValueError if the head needs the counts of the training text and lacks them."""

    def check_options(self, options: LossOptions) -> None:
        """Raises ValueError for the first option that the loss does not support."""
        check_unset(options, self.refuses, self.flag)

    def tally(self, target_N: Tensor) -> dict[str, Tensor]:
        """Sums over the target tokens to log beside the loss.

        Returns:
            Sums by name. ``share:NAME`` is a number of tokens, logged as NAME in percent. ``nll:NAME`` is a part of the
            negative log-likelihood; ``ppl_NAME`` is the perplexity without it.
        """
        return {}

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the biases so that zero features give these log-probabilities (V,); None sets the biases to 0."""
        if "table" in self.__dict__:
            self.table.start_bias(log_prob_V)

    def tables(self) -> dict[str, Any]:
        """The head's output embeddings (``SharedEmbedding``), by name; empty for a head without one."""
        return {"words": self.table} if "table" in self.__dict__ else {}


def log_prob_by_loss(head: Head, features_ND: Tensor, target_N: Tensor) -> Tensor:
    """``Head.log_prob`` of a head whose loss is exact, and needs no N x V logits in memory."""
    return -head.loss(features_ND, target_N, LossOptions(reduce=False)).loss


def no_counts(flag: str) -> ValueError:
    """The error of a head that lacks the counts of the training text."""
    needs, got = "the counts of the training text", "a data folder without split train"
    return ValueError(f"{flag}: needs {needs}; got {got}. Use the folder that fairseq-preprocess wrote for training.")
