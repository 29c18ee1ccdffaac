"""A faster choice of the best words in fairseq's beam search on a CPU."""

import functools
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from ..wrapping import wrap

BLOCK = 64  # words of which a search sees the maximum first
# Of the models of generators that threads share.
SEARCHING: weakref.WeakKeyDictionary[torch.nn.Module, threading.RLock] = weakref.WeakKeyDictionary()


@wrap(SequenceGenerator, "generate")
def best_words_of_blocks(original: Any, self: SequenceGenerator, *args: Any, **kwargs: Any) -> Any:
    """Look for the best words of a beam search among blocks of words, those with the largest maxima.

    Without it: torch orders all words of all beams, after a copy with the beams' scores, in four times the time, and
    all are compared with themselves to find NaN. Goes when torch's is as fast.
    """
    if type(self.search) is not BeamSearch:
        return original(self, *args, **kwargs)
    # Only for the call, one at a time: a class with another `step` is nothing for torch.jit.script.
    step = functools.partial(best_words, self.search)
    with SEARCHING.setdefault(self.model, threading.RLock()), mock.patch.object(self.search, "step", step):
        if kwargs.get("prefix_tokens") is not None or type(self)._generate is not SequenceGenerator._generate:
            return original(self, *args, **kwargs)  # what else is done with log-probabilities may need the mask
        forward = functools.partial(_unchecked, self.model.forward_decoder)
        with mock.patch.object(self.model, "forward_decoder", forward):
            return original(self, *args, **kwargs)


class Unchecked(Tensor):
    """Log-probabilities in which fairseq's search does not look for NaN (`lprobs != lprobs`): ``best_words`` does."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __ne__(self, other: Any) -> Any:
        return slice(0) if other is self else super().__ne__(other)


def _unchecked(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    log_probs, attention = forward(*args, **kwargs)
    return log_probs.as_subclass(Unchecked), attention


def best_words(
    search: BeamSearch, step: int, lprobs: Tensor, scores: Tensor | None, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """What ``BeamSearch.step`` returns: scores, words and beams of the k = 2 beams best continuations, each (B, k).

    A word whose log-probability is NaN is impossible, as fairseq has it; ValueError if all of a sentence are.
    """
    if step > 0 and scores is not None and lprobs.device.type == "cpu" and lprobs.size(2) >= 2 * BLOCK:
        best = _best_of_blocks(lprobs, scores[:, :, step - 1])
        if not best[0].isnan().any():  # for topk and amax the largest of all is NaN
            return best
    impossible = lprobs.isnan()
    lprobs.masked_fill_(impossible, -math.inf)
    if impossible.any() and not lprobs.isfinite().flatten(1).any(1).all():
        needs, got = "a model that gives some word a probability in each step", "nan for all words of a sentence"
        raise ValueError(f"--path: needs {needs}; got {got}. Use a checkpoint from before the training diverged.")
    return BeamSearch.step(search, step, lprobs, scores, *others)


def _best_of_blocks(lprobs: Tensor, before: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The k best are in the k blocks with the best maxima: these k maxima are as good as any word of another block."""
    bsz, beams, size = lprobs.shape
    blocks, count = size // BLOCK, 2 * beams
    maxima = lprobs[:, :, : blocks * BLOCK].unflatten(2, (blocks, BLOCK)).amax(3) + before.unsqueeze(2)
    best = maxima.flatten(1).topk(count).indices
    first = best // blocks * size + best % blocks * BLOCK
    block, rest = _words(beams, size)
    words = torch.cat(((first.unsqueeze(2) + block).flatten(1), rest.expand(bsz, -1)), 1)
    best_scores, order = (lprobs.flatten(1).gather(1, words) + before.gather(1, words // size)).topk(count)
    words = words.gather(1, order)
    return best_scores, words % size, words // size


@functools.lru_cache(maxsize=8)
def _words(beams: int, size: int) -> tuple[Tensor, Tensor]:
    """The places of a block's words, and those, of all beams, of the last words, which are less than a block."""
    last = torch.arange(size // BLOCK * BLOCK, size)
    return torch.arange(BLOCK), (torch.arange(beams).unsqueeze(1) * size + last).flatten()
