"""What is computed from tensors that stay unchanged, kept from one call to the next."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class Kept:
    """What functions of tensors return, kept while none of the tensors changes.

    Copies and pickles are empty: packed weights have neither.
    """

    def __init__(self, keeps: bool = False):
        self.keeps = keeps
        self.last: tuple[Any, Any] = (None, None)  # a buffer would lose its precision in `.half()`

    def __call__(self, compute: Callable[[bool], Any], read: Iterable[Tensor]) -> Any:
        """``compute(True)`` of weights, kept as by ``of``; without ``keeps``, or with gradients, ``compute(False)``."""
        read = list(read)
        # An inference tensor has no version counter.
        if not self.keeps or torch.is_grad_enabled() or any(tensor.is_inference() for tensor in read):
            return compute(False)
        return self.of(lambda: compute(True), read)

    def of(self, compute: Callable[[], Any], read: Iterable[Tensor]) -> Any:
        """``compute()``, kept until one of the tensors that it reads changes."""
        key = [(tensor._version, tensor.data_ptr(), tensor.dtype, tensor.device) for tensor in read]
        if self.last[0] != key:
            self.last = (key, compute())
        return self.last[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"keeps": self.keeps, "last": (None, None)}


class Keeping(nn.Module):
    """Mixin of modules that keep what they compute from their weights while they decode."""

    kept = Kept()  # nothing, until ``keep``

    def keep(self, keep: bool = True, **_: Any) -> None:
        """Keeps it while the weights stay unchanged; ``keep=False`` ends that.

        For decoding without gradients. Writes through ``weight.data`` are missed. ``train()`` ends keeping.
        """
        self.kept = Kept(keep)

    make_generation_fast_ = keep  # fairseq's hook before decoding

    def train(self, mode: bool = True) -> Any:
        if mode:
            self.keep(False)
        return super().train(mode)
