"""Small corpora for the tests of streams."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fairseq_tiedemb.tasks._streams import TokenStream
from fairseq_tiedemb.tasks.contiguous_lm import ContiguousLMTask

from ..models.common import dictionary

WORDS = dictionary(24)


class Sentences(list):
    """What a TokenStream needs of fairseq's indexed datasets."""

    supports_prefetch = False

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(sentence) for sentence in self], dtype=np.int64)


def sentences(length: int, seed: int = 1) -> Sentences:
    """Random sentences, each with its end of sentence, ``length`` tokens in all; int32, as fairseq's are."""
    rng = np.random.default_rng(seed)
    text = Sentences()
    while length:
        size = min(int(rng.integers(1, 9)), length)
        words = rng.integers(4, len(WORDS), size - 1).tolist()
        text.append(torch.tensor([*words, WORDS.eos()], dtype=torch.int32))
        length -= size
    return text


def stream(length: int, seed: int = 1) -> TokenStream:
    return TokenStream(sentences(length, seed), WORDS, "train")


def batches(task: Any, tokens: TokenStream, **settings: Any) -> list[dict[str, Any]]:
    """All batches of an epoch, as a command gets them."""
    return list(task.get_batch_iterator(tokens, **settings).next_epoch_itr(shuffle=False))


def task_with(chunk: int, **options: Any) -> ContiguousLMTask:
    """``contiguous_lm`` with chunks of so many tokens."""
    given = {"sample_break_mode": "none", "tokens_per_sample": chunk, "batch_size": None, **options}
    return ContiguousLMTask(SimpleNamespace(**given), WORDS)
