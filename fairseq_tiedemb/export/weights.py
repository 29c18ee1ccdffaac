"""The weights of a checkpoint, before anything is made of them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fairseq_tiedemb.analysis.checkpoints import require_finite


def require_weights(model: Mapping[str, Any], name: str) -> None:
    """Raises unless a state dict has weights, all of them finite.

    Args:
        model: the state dict.
        name: of its file, for errors.

    Raises:
        ValueError: naming the first tensor that is not.
    """
    if not any(isinstance(value, Tensor) and value.is_floating_point() for value in model.values()):
        raise ValueError(f"CHECKPOINT: needs a model; got {name}, whose model has no weights. Use another.")
    require_finite(model, name, flag="CHECKPOINT")
