"""What is computed in float32 at least, whatever the precision of a model."""

import torch
from torch import Tensor


def exact_dtype(x: Tensor) -> torch.dtype:
    """float32, or the dtype of x if that is more precise."""
    return x.dtype if x.dtype == torch.float64 else torch.float32


def exact(x: Tensor) -> Tensor:
    """x in float32 at least."""
    return x.to(exact_dtype(x))
