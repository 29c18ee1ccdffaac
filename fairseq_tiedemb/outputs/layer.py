"""The output layer of every model: projection, factor, head."""

from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss
from ..modules.factorized import narrowing
from ..regularizers import half_squared_norm
from .counted import CountedHead


class Head(Protocol):
    """What turns features into probabilities of words; see ``fairseq_tiedemb.outputs``.

    Attributes:
        by_target: whether the probability of a given word takes less than the scores of all words. Then decoders hand
            on features, and not scores, until it is known which words are asked for.
        loss_is_its_own: whether training by the scores of all words, as fairseq's criterions do, would train something
            else.
    """

    by_target: bool
    loss_is_its_own: bool

    def scores(self, features: Tensor) -> Tensor: ...

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = ...) -> OutputLoss: ...

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor: ...

    def start_bias(self, log_prob_V: Tensor | None) -> None: ...

    def tables(self) -> dict[str, SharedEmbedding]: ...


class OutputLayer(nn.Module):
    """Probabilities of words from features h: head(Q (P h + b)).

    P, a projection with a penalty of its own, and Q, which narrows to the width of a factorised table, may both be
    missing. Called like a function, it scores, so that it can stand where fairseq has its ``output_projection``.

    The head is the layer's own, or borrowed: owned by another module, as a tied table is by the model's input. P is the
    decoder's. What is borrowed is held unregistered, so there is one tensor and nothing to come apart. In checkpoints
    the table stands under this layer's own name (``weight``, ``bias``) either way, as fairseq writes it, so that each
    loads the other's; a borrowed one is read from its owner's entry and must equal this one.

    A head that scores words by a table and has parts of its own besides, such as classes, is given as ``over``: the
    table keeps its name in checkpoints, and the parts stand under ``over``.

    Args:
        table: what scores words, which is a head itself, or what ``over`` scores them by.
        borrowed: whether another module owns it.
        projection: P, owned by the decoder.
        factor: Q, owned by this layer.
        over: the head over the table, owned by this layer.

    Source: Press & Wolf 2016, section 3 (P); Lan et al. 2020 (ALBERT), section 3.1 (Q).
    """

    def __init__(
        self,
        table: nn.Module,
        *,
        borrowed: bool = False,
        projection: nn.Linear | None = None,
        factor: nn.Linear | None = None,
        over: nn.Module | None = None,
    ):
        super().__init__()
        if not borrowed:
            self.owned = table
        self.over = over
        # In tuples, which torch does not search for modules.
        self._borrowed_table = (table if borrowed else None,)
        self._projection = (projection,)
        self.factor = factor
        self.register_state_dict_post_hook(_name_the_table)
        self.register_load_state_dict_pre_hook(_find_the_table)

    @property
    def head(self) -> Any:
        """What gives words their probabilities."""
        return self.table if self.over is None else self.over

    @property
    def table(self) -> Any:
        """What scores words: a table, or what has no single one."""
        (borrowed,) = self._borrowed_table
        return self.owned if borrowed is None else borrowed

    @property
    def projection(self) -> nn.Linear | None:
        """P."""
        return self._projection[0]

    @property
    def weight(self) -> Tensor:
        """W (V, D) of a head with one table, where fairseq looks for it."""
        return self.table.weight

    def transformed(self, features: Tensor) -> Tensor:
        """What the head gets: Q (P h + b)."""
        if self.projection is not None:
            features = self.projection(features)
        return features if self.factor is None else self.factor(features)

    def scores(self, features: Tensor) -> Tensor:
        """Scores of all words: (*, D) -> (*, V)."""
        return self.head.scores(self.transformed(features))

    def forward(self, features: Tensor) -> Tensor:
        """``scores``."""
        return self.scores(features)

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy of the target words; see ``output_loss``."""
        return self.head.loss(self.transformed(features_ND), target_N, options)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logarithms of the probabilities of given words, (N,)."""
        return self.head.log_prob(self.transformed(features_ND), target_N)

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Scores of given words (N,), not normalised, at the cost of these words alone.

        Raises:
            ValueError: for a head that has no scores of words.
        """
        self.check_raw_scores()
        return self.head.raw_scores(self.transformed(features_ND), target_N)

    def check_raw_scores(self) -> None:
        """Checks that the score of a word can be had alone, and may stand for its log-probability.

        Raises:
            ValueError: for a head that has no scores of words, or one for each part of a word's probability.
        """
        if not hasattr(self.head, "raw_scores"):
            found = getattr(self.head, "flag", type(self.head).__name__)
            raise ValueError(
                f"--raw: needs an output layer that scores words, softmax or nce; got {found}. Leave it out."
            )

    def penalty(self) -> Tensor | None:
        """||P||_F^2 / 2, without P's bias, in float32 at least; None without P.

        Source: Press & Wolf 2016, section 3 (projection regularization).
        """
        return None if self.projection is None else half_squared_norm(self.projection.weight)

    def check_training(self, options: LossOptions) -> None:
        """Checks that the head can be trained: that it has the training text that it needs, the loss, and its classes.

        Raises:
            ValueError: if it has not.
        """
        if (refusal := getattr(self.head, "not_to_be_trained", None)) is not None:
            raise refusal
        if isinstance(self.head, CountedHead):
            self.head.require_counts()
            self.head.refuse(options)

    def start_bias(self, log_prob_V: Tensor | None) -> None:
        """Sets the biases so that, without features, words have these probabilities.

        Args:
            log_prob_V: their logarithms; None for biases of 0.
        """
        self.head.start_bias(log_prob_V)

    def tables(self) -> dict[str, SharedEmbedding]:
        """The tables that words are scored by, by the name of their words."""
        return self.head.tables()

    def extra_repr(self) -> str:
        return "" if self._borrowed_table[0] is None else "tied"


def build_output(
    table: SharedEmbedding,
    *,
    borrowed: bool,
    features_dim: int,
    projection: nn.Linear | None = None,
    factorized: bool = False,
    over: nn.Module | None = None,
) -> OutputLayer:
    """The output layer of one table for all words, of every family.

    Args:
        table: of the words.
        borrowed: whether it is tied: owned by the model's input.
        features_dim: D, width of the features.
        projection: P, from D to the width of the rows or, if it is narrowed, of Q's input.
        factorized: whether Q narrows to the width of the rows.
        over: the head over the table; None for the full softmax.

    Raises:
        ValueError: if what reaches the table is not as wide as its rows.
    """
    width = features_dim if projection is None else projection.out_features
    if not factorized and width != table.embedding_dim:
        raise ValueError(
            f"output layer: needs features as wide as the table's rows; got {width} and {table.embedding_dim}. "
            "Use a projection."
        )
    factor = narrowing(width, table.embedding_dim) if factorized else None
    return OutputLayer(table, borrowed=borrowed, projection=projection, factor=factor, over=over)


HEAD = "owned."
# What version 0.1.0 called the parts of a factorised layer.
FORMER_NAMES = {"layer.": "", "projection.weight": "factor.weight"}


def _name_the_table(layer: nn.Module, state_dict: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    """Writes the head's entries under the layer's name, the borrowed table's too."""
    assert isinstance(layer, OutputLayer)
    for key in [key for key in state_dict if key.startswith(prefix + HEAD)]:
        state_dict[prefix + key.removeprefix(prefix + HEAD)] = state_dict.pop(key)
    (borrowed,) = layer._borrowed_table
    if isinstance(borrowed, SharedEmbedding):
        for name, entry in borrowed.state_dict().items():
            state_dict[prefix + name] = entry


def _find_the_table(
    layer: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    local_metadata: Any,
    strict: bool,
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Reads what ``_name_the_table`` writes, and checks that a borrowed table is the one that its owner has read."""
    assert isinstance(layer, OutputLayer)
    for key in [key for key in state_dict if key.startswith(prefix)]:
        name = key.removeprefix(prefix)
        for former, current in FORMER_NAMES.items():
            if name.startswith(former) and layer.factor is not None:
                state_dict[prefix + current + name.removeprefix(former)] = state_dict.pop(key)
                break
    (borrowed,) = layer._borrowed_table
    if borrowed is None:
        for name in layer.owned.state_dict():
            if prefix + name in state_dict:
                state_dict[prefix + HEAD + name] = state_dict.pop(prefix + name)
        return
    if not isinstance(borrowed, SharedEmbedding):
        # fairseq's decoders add this to a checkpoint without it, with an adaptive softmax too, if they share tables.
        state_dict.pop(prefix + "weight", None)
        return
    # Modules load in the order of registration, so the owner has read its own entry before.
    for name, owned in borrowed.state_dict().items():
        entry = state_dict.pop(prefix + name, None)
        if entry is not None and entry.shape != owned.shape:
            error_msgs.append(
                f"{prefix}{name}: needs shape {tuple(owned.shape)}, that of the input's table, with which it is tied; "
                f"got {tuple(entry.shape)}. Use the sizes of the training."
            )
        elif entry is not None and not _equal(entry, owned):
            error_msgs.append(
                f"{prefix}{name}: needs the table of the input, with which it is tied; got another one. Use the "
                "checkpoint without --share-decoder-input-output-embed and --share-all-embeddings."
            )


def _equal(entry: Tensor, owned: Tensor) -> bool:
    return torch.allclose(entry.to(owned), owned, rtol=0.0, atol=0.0, equal_nan=True)
