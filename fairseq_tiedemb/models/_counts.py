"""Token counts of the training text, and output biases that start by them."""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..outputs import ADAPTIVE, SOFTMAX, OutputLayer, unigram
from ..tasks._streams import open_stream


def training_counts(task: Any) -> Tensor | None:
    """Token counts (V,) of the binarised training text over all its folders and shards; None without a text.

    fairseq's dictionary lacks the counts of ``</s>`` and ``<unk>``, 9% of PTB's tokens. The split is ``--train-subset``
    for this package's tasks, else ``train``.
    """
    options = getattr(task, "args", None) or getattr(task, "cfg", None)
    folders = (getattr(options, "data", None) or "").split(":")
    split = getattr(options, "train_subset", None) or "train"
    words, dictionary = task.source_dictionary, task.target_dictionary
    counts = np.zeros(len(dictionary), dtype=np.int64)
    for folder in filter(None, folders):
        with contextlib.suppress(FileNotFoundError):
            of_split = open_stream(f"{folder}/{split}", words, combine=True).counts()
            counts += of_split[: len(counts)]
            counts[dictionary.unk()] += of_split[len(counts) :].sum()  # words beyond --output-dictionary-size
    return torch.from_numpy(counts) if counts.any() else None


def start_biases(
    output: OutputLayer, head: str, start: str | None, size: int, counts: Callable[[], Tensor | None]
) -> None:
    """Initialises biases of ``size`` words by ``--output-bias-init``; unigram changes nothing without ``counts``."""
    if start is None and head not in (SOFTMAX, ADAPTIVE):
        start = "unigram"
    if start == "unigram":
        found = counts()
        if found is not None:  # else the biases come with a checkpoint
            output.head.start_bias(unigram(found).log())
    elif start is not None:
        output.head.start_bias(torch.full((size,), 1 / size).log() if start == "uniform" else None)
