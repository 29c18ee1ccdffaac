"""The output layer of every model: projection, factor, head."""

from typing import Any

import torch
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..losses import PLAIN_LOSS, LossOptions, OutputLoss


class OutputLayer(nn.Module):
    """Token probabilities from features h: head(Q (P h + b)). Called like a function, it gives logits, as in fairseq.

    P is an optional projection with a penalty of its own, owned by the decoder. Q narrows to a factorised table.

    The layer owns its table or borrows it: the model's input owns a tied table. A borrowed table is not registered as a
    submodule, so there is one tensor and no alias to break. Checkpoints hold the table under this layer's name
    (``weight``, ``bias``) in both cases, as fairseq's do, so each program loads the other's. A borrowed table loads
    from its owner's entry, and this layer's entry must equal it.

    A head with parts beside the table, such as classes, is given as ``over``. The table keeps its name in checkpoints,
    and the parts are saved under ``over``.

    Args:
        table: a head by itself, or the table that ``over`` uses.
        borrowed: whether another module owns the table.
        projection: P, owned by the decoder.
        factor: Q, owned by this layer.
        over: head over the table, owned by this layer.

    Source: Press & Wolf 2016, section 3 (P); Lan et al. 2020 (ALBERT), section 3.1 (Q).
    """

    borrowed: Any  # the table if another module owns it, else None
    projection: nn.Linear | None

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
        # Hidden from torch's registry.
        self.__dict__.update(borrowed=table if borrowed else None, projection=projection)
        self.factor = factor
        self.register_state_dict_post_hook(_name_the_table)
        self.register_load_state_dict_pre_hook(_find_the_table)

    @property
    def head(self) -> Any:
        """The head: ``over`` if given, else the table."""
        return self.table if self.over is None else self.over

    @property
    def table(self) -> Any:
        """The output embedding, or a head without a single one."""
        return self.owned if self.borrowed is None else self.borrowed

    @property
    def weight(self) -> Tensor:
        """W (V, D) of a head with one table, under fairseq's name."""
        return self.table.weight

    def transformed(self, features: Tensor) -> Tensor:
        """The head's input Q (P h + b)."""
        if self.projection is not None:
            features = self.projection(features)
        return features if self.factor is None else self.factor(features)

    def scores(self, features: Tensor) -> Tensor:
        """Logits of the whole vocabulary: (*, D) -> (*, V)."""
        return self.head.scores(self.transformed(features))

    forward = scores

    def loss(self, features_ND: Tensor, target_N: Tensor, options: LossOptions = PLAIN_LOSS) -> OutputLoss:
        """Cross entropy of the target tokens; see ``output_loss``."""
        return self.head.loss(self.transformed(features_ND), target_N, options)

    def loss_of_sets(self, features_nD: Tensor, *arguments: Any) -> OutputLoss:
        """``loss`` where several targets share a feature; see ``Head.loss_of_sets``."""
        return self.head.loss_of_sets(self.transformed(features_nD), *arguments)

    def log_prob(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Log-probabilities of the target tokens (N,)."""
        return self.head.log_prob(self.transformed(features_ND), target_N)

    def raw_scores(self, features_ND: Tensor, target_N: Tensor) -> Tensor:
        """Logit of each target token (N,) from the target rows alone; raises ValueError as ``check_raw_scores``."""
        self.check_raw_scores()
        return self.head.raw_scores(self.transformed(features_ND), target_N)

    def check_raw_scores(self) -> None:
        """Raises ValueError unless one token's logit can be computed alone."""
        if not self.head.has_raw_scores:
            needs = "an output layer that scores words, softmax, nce or sampled"
            raise ValueError(f"--raw: needs {needs}; got {self.head.flag}. Leave it out.")

    def check_training(self, options: LossOptions) -> None:
        """Raises ValueError if the head cannot be trained: no counts, other classes, or an unsupported loss option."""
        if self.head.not_to_be_trained is not None:
            raise self.head.not_to_be_trained
        self.head.require_counts()
        self.head.check_options(options)

    def tables(self) -> dict[str, SharedEmbedding]:
        """The output embeddings by the name of their tokens."""
        return self.head.tables()

    def extra_repr(self) -> str:
        return "" if self.borrowed is None else "tied"


HEAD = "owned."
# Names of a factorised layer's parts in checkpoints of version 0.1.0, and today's names.
FORMER_NAMES = {"projection.weight": "factor.weight", "layer.": ""}


def _name_the_table(layer: OutputLayer, state_dict: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    """Saves the head's entries, and a borrowed table's, under the layer's own name."""
    for key in [key for key in state_dict if key.startswith(prefix + HEAD)]:
        state_dict[prefix + key.removeprefix(prefix + HEAD)] = state_dict.pop(key)
    if isinstance(layer.borrowed, SharedEmbedding):
        for name, entry in layer.borrowed.state_dict().items():
            state_dict[prefix + name] = entry


def _find_the_table(layer: OutputLayer, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
    """Loads what ``_name_the_table`` saves, and checks that a borrowed table's entry equals its owner's."""
    error_msgs: list[str] = others[-1]
    if layer.factor is not None:
        for former, current in FORMER_NAMES.items():
            for key in [key for key in state_dict if key.startswith(prefix + former)]:
                state_dict[prefix + current + key.removeprefix(prefix + former)] = state_dict.pop(key)
    if layer.borrowed is None:
        for name in layer.owned.state_dict():
            if prefix + name in state_dict:
                state_dict[prefix + HEAD + name] = state_dict.pop(prefix + name)
        return
    if not isinstance(layer.borrowed, SharedEmbedding):
        # fairseq's decoders with shared tables add this key to checkpoints, even for an adaptive softmax.
        state_dict.pop(prefix + "weight", None)
        return
    # Modules load in the order of registration, so the owner has already loaded its entry.
    for name, owned in layer.borrowed.state_dict().items():
        key = prefix + name
        entry = state_dict.pop(key, None)
        if entry is not None and entry.shape != owned.shape:
            needs = f"shape {tuple(owned.shape)}, that of the input's table, with which it is tied"
            error_msgs.append(f"{key}: needs {needs}; got {tuple(entry.shape)}. Use the sizes of the training.")
        elif entry is not None and not torch.allclose(entry.to(owned), owned, rtol=0.0, atol=0.0, equal_nan=True):
            needs = "the table of the input, with which it is tied"
            use = "`fairseq-tiedemb tie` on the checkpoint, or the options of its training"
            error_msgs.append(f"{key}: needs {needs}; got another one. Use {use}.")
