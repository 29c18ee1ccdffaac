"""Base class of heads over a table that need the token counts of the training text."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss, check_plain


class CountedHead(nn.Module):
    """A head over a table, with the token counts of the training text, which are saved in checkpoints.

    By default probabilities are those of the full softmax, without special symbols that the training text lacks (such
    as ``<s>`` and ``<pad>``): their rows are never trained, so their probability is 0.

    Args:
        table: output embedding, owned by another module.
        counts: counts of the tokens (V,); None if a checkpoint brings them.
        marks: indices of fairseq's special symbols.
        size: V, if the table has fewer rows than the vocabulary.

    Attributes:
        flag: option that selects this head, for messages.
    """

    flag = "--output-layer"
    by_target = False
    loss_is_its_own = True
    counts: Tensor

    def __init__(self, table: SharedEmbedding, counts: Tensor | None, marks: Sequence[int], *, size: int | None = None):
        super().__init__()
        self._table = (table,)  # a tuple hides the module from torch's registry
        self.marks = tuple(marks)
        unknown = torch.zeros(size or table.num_embeddings, dtype=torch.int64)
        self.register_buffer("counts", unknown if counts is None else counts.to(unknown))
        self.register_load_state_dict_post_hook(_prepare)

    @property
    def table(self) -> SharedEmbedding:
        """The output embedding."""
        return self._table[0]

    def prepare(self) -> None:
        """Derives tensors from the counts; called again after a checkpoint is loaded."""

    def never(self) -> Tensor:
        """Mask of tokens with probability 0 (V,): special symbols that do not occur in the training text."""
        marks = torch.zeros_like(self.counts, dtype=torch.bool)
        marks[list(self.marks)] = True
        return marks & self.counts.eq(0)

    def require_counts(self) -> None:
        """Raises ValueError if the counts of a training text are unknown."""
        if not self.counts.any():
            raise ValueError(
                f"{self.flag}: needs the counts of the training text; got a data folder without split train. Use the "
                "folder that fairseq-preprocess wrote for training."
            )

    def refuse(self, options: LossOptions) -> None:
        """Raises ValueError for label smoothing and z-loss, which need the logits of the whole vocabulary."""
        check_plain(options, self.flag)

    def scores(self, features: Tensor) -> Tensor:
        """Logits of the whole vocabulary, -inf for tokens with probability 0: (*, D) -> (*, V)."""
        return self.table.scores(features).masked_fill(self.never(), -torch.inf)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Surrogate loss in training mode, exact cross entropy in evaluation mode.

        Raises:
            ValueError: for label smoothing or z-loss, and for training without counts.
        """
        self.refuse(options)
        if not self.training:
            return self.table.loss(features_ND, target_N, options, self.never())
        self.require_counts()
        losses = self.surrogate(features_ND, target_N)
        return OutputLoss(losses.sum() if options.reduce else losses, None)

    def surrogate(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """The training objective that replaces the cross entropy, one number per token (N,)."""
        raise NotImplementedError

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Log-probabilities of the target tokens (N,)."""
        return -self.table.loss(features_ND, target_N, LossOptions(reduce=False), self.never()).loss

    def tally(self, target_N: Tensor) -> dict[str, Tensor]:
        """Sums over the target tokens to log beside the loss, by name; none by default."""
        return {}

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the biases so that zero features give these log-probabilities (V,); None sets the biases to 0."""
        self.table.start_bias(log_prob_V)

    def tables(self) -> dict[str, SharedEmbedding]:
        """The output embeddings by the name of their tokens."""
        return {"words": self.table}


def _prepare(head: CountedHead, _: Any) -> None:
    head.prepare()


def unigram(counts: Tensor, power: float = 1.0) -> Tensor:
    """Unigram distribution q_v = c_v^power / sum_u c_u^power (V,) in float64, where a count of 0 counts as 1.

    ``power`` 1 gives relative frequencies, 0 the uniform distribution.
    """
    powers = counts.double().clamp(min=1.0).pow(power)
    return powers / powers.sum()
