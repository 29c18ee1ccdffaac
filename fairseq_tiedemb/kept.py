"""A cache of what is computed from tensors, valid while they are unchanged."""

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
        # Key, result, and what was read, whose memory no other tensor gets; a buffer would change in `.half()`.
        self.last: tuple[Any, ...] = (None, None)

    def __call__(self, compute: Callable[[bool], Any], read: Iterable[Tensor]) -> Any:
        """``compute(True)`` of weights, kept as by ``of``; ``compute(False)`` where it cannot be."""
        read = list(read)
        # Autocast casts no packed weight, and an inference tensor has no version counter.
        never = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu")
        if not self.keeps or never or any(tensor.is_inference() for tensor in read):
            return compute(False)
        return self.of(lambda: compute(True), read)

    def of(self, compute: Callable[[], Any], read: list[Tensor]) -> Any:
        """``compute()``, kept until one of the tensors that it reads changes."""
        key = [(tensor._version, tensor.data_ptr(), tensor.dtype, tensor.device) for tensor in read]
        if self.last[0] != key:
            self.last = (key, compute(), [tensor.detach() for tensor in read])
        return self.last[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"keeps": self.keeps, "last": (None, None)}


class Keeping(nn.Module):
    """Mixin of modules that keep what they compute from their weights while they decode."""

    kept = Kept()  # nothing, until ``keep``

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.keep(False)  # the compiler of torch 2.6 does not look for it in a class

    def keep(self, keep: bool = True, **_: Any) -> None:
        """Keeps what is computed from the weights while they are unchanged; ``keep=False`` and ``train()`` end that.

        For decoding without gradients. Writes through ``weight.data`` and by torch's fused optimisers are missed.
        """
        self.kept = Kept(keep)

    make_generation_fast_ = keep  # fairseq's hook before decoding

    def train(self, mode: bool = True) -> Any:
        if mode:
            self.keep(False)
        return super().train(mode)
