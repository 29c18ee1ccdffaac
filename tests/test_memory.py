"""The memory of the loss by its formula (.github/SCALING.md), beside what a training step allocates."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_tiedemb.losses import output_loss


class Allocated(TorchDispatchMode):
    """Counts the bytes of all storages that operations make, and those of them that are alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.live = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._note((args, kwargs), is_new=False)
        result = func(*args, **(kwargs or {}))
        self._note(result, is_new=True)
        return result

    def _note(self, values: Any, *, is_new: bool) -> None:
        for storage in (value.untyped_storage() for value in tree_leaves(values) if isinstance(value, Tensor)):
            if storage._cdata not in self.sizes:
                self.sizes[storage._cdata] = size = storage.nbytes() * is_new
                self.live += size
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._freed, storage._cdata)

    def _freed(self, key: int) -> None:
        self.live -= self.sizes.pop(key, 0)


def by_formula(tokens: int, words: int, width: int, dtype: torch.dtype) -> int:
    """Bytes beyond the inputs: the gradients, and the logits that are there at once."""
    size = dtype.itemsize
    gradients = (words + tokens) * width * size
    if dtype == torch.bfloat16 and words * min(tokens, 128) > 2**24:
        return gradients + max(2**18, 256 * tokens) * (size + 2 * 4)
    rows = min(tokens, 512, max(2**24 // words, 64))
    multiple = 1 if size > 2 or tokens < 64 else 16 if tokens < 512 else 64
    logits = -(-rows // multiple) * multiple * words * size
    summed_in_float32 = words * width * 4 if size < 4 and rows < tokens else 0
    return gradients + logits + summed_in_float32


@pytest.mark.parametrize(
    ("tokens", "words", "width", "dtype"),
    [
        (400, 10_000, 200, torch.float32),
        (4000, 10_000, 32, torch.float32),
        (1500, 30_000, 16, torch.float32),
        (300, 250_000, 8, torch.float32),
        (400, 10_000, 200, torch.bfloat16),
        (1000, 10_000, 200, torch.bfloat16),
        (4033, 2000, 512, torch.bfloat16),
        (400, 250_000, 8, torch.bfloat16),
    ],
)
def test_the_loss_takes_what_its_formula_says(tokens: int, words: int, width: int, dtype: torch.dtype) -> None:
    table = torch.randn(words, width).to(dtype).requires_grad_()
    features = torch.randn(tokens, width).to(dtype).requires_grad_()
    target = torch.randint(words, (tokens,))
    with Allocated() as allocated:
        (output_loss(features, table, target).loss * 0.5).backward()
    assert allocated.peak == pytest.approx(by_formula(tokens, words, width, dtype), rel=0.1)
    assert allocated.peak < tokens * words * 4 + 2 * words * width * 4
