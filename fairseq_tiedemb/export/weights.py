"""The weights of a checkpoint, before anything is made of them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor


def require_weights(model: Mapping[str, Any], name: str) -> None:
    """Raises unless a state dict has weights, all of them finite.

    Args:
        model: the state dict.
        name: of its file, for errors.

    Raises:
        ValueError: naming the first tensor that is not.
    """
    weights = {key: value for key, value in model.items() if isinstance(value, Tensor) and value.is_floating_point()}
    if not weights:
        raise ValueError(f"CHECKPOINT: needs a model; got {name}, whose model has no weights. Use another.")
    for key, value in weights.items():
        if not value.isfinite().all():
            raise ValueError(
                f"CHECKPOINT: needs weights that are finite; got {key} of {name} with "
                f"{int((~value.isfinite()).sum()):,} of {value.numel():,} values that are not: the training diverged. "
                "Use an earlier checkpoint."
            )
