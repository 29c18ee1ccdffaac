"""Checks the weights of a checkpoint before an export."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fairseq_tiedemb.checkpoints.reading import require_finite


def require_weights(model: Mapping[str, Any], name: str) -> None:
    """Checks that a state dict has weights, and that all are finite; errors name the file, `name`.

    Raises:
        ValueError: if there are no weights; else naming the first entry with inf or nan.
    """
    if not any(isinstance(value, Tensor) and value.is_floating_point() for value in model.values()):
        raise ValueError(f"CHECKPOINT: needs a model; got {name}, whose model has no weights. Use another.")
    require_finite(model, name, flag="CHECKPOINT")
