"""Two ways to one loss: its value and its gradients are the same."""

from collections.abc import Iterable

import torch
from torch import Tensor


def assert_same_gradients(
    found: Tensor, expected: Tensor, inputs: Iterable[Tensor], *, rtol: float = 1e-9, atol: float = 1e-12
) -> None:
    """Those of two losses, input by input; the losses are the same to a rounding too, and fit for another backward."""
    inputs = list(inputs)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(loss, inputs, retain_graph=True) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)
