"""Layers from features to word scores that stand where fairseq's decoders have their ``output_projection``."""

from typing import Any

import torch
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..output_loss import OutputLoss


class OutputTable(SharedEmbedding):
    """A table of its own for the output: called like a function, it scores."""

    def forward(self, features: Tensor) -> Tensor:
        """``scores``: (*, D) -> (*, V)."""
        return self.scores(features)


class TiedOutput(nn.Module):
    """Scores from a table that another module owns; it has no parameters of its own.

    The owner is held unregistered, so there is one tensor under one name, and nothing to come apart. In checkpoints the
    table stands under this layer's name too (``weight``), as fairseq writes tied tables, so that either loads the
    other's. What is read is the owner's entry.

    Args:
        table: the owner.
    """

    def __init__(self, table: SharedEmbedding):
        super().__init__()
        self._table = (table,)  # in a tuple, which torch does not search for modules

    @property
    def table(self) -> SharedEmbedding:
        """The owner."""
        return self._table[0]

    @property
    def weight(self) -> Tensor:
        """W (V, D), the owner's."""
        return self.table.weight

    def forward(self, features: Tensor) -> Tensor:
        """``scores``: (*, D) -> (*, V)."""
        return self.table.scores(features)

    def loss(self, features_ND: Tensor, target_N: Tensor, **options: float) -> OutputLoss:
        """``SharedEmbedding.loss``."""
        return self.table.loss(features_ND, target_N, **options)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"] = self.weight if keep_vars else self.weight.detach()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # Modules load in the order of registration, so the owner has read its own entry before.
        entry = state_dict.get(prefix + "weight")
        if entry is not None and entry.shape == self.weight.shape:
            if not torch.allclose(entry.to(self.weight), self.weight, rtol=0.0, atol=0.0, equal_nan=True):
                error_msgs.append(
                    f"{prefix}weight: needs the table of the input, with which it is tied; got another one. Use the "
                    "checkpoint without --share-decoder-input-output-embed and --share-all-embeddings."
                )

    def extra_repr(self) -> str:
        return f"tied, {self.table.extra_repr()}"
