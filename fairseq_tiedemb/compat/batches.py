"""Batches: no sentence is lost, sizes are what was asked for, an empty file is named; what reads ahead ends in time."""

import atexit
import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.data import FairseqDataset, data_utils, indexed_dataset, iterators
from fairseq.tasks.language_modeling import LanguageModelingTask

from ._replace import replace

# At the end of a command; a data worker that hangs must not keep the command for ever.
SECONDS_FOR_A_BATCH = 10


def last_batch() -> None:
    """Keep the sentences that are left over when the rest is no multiple of `--required-batch-size-multiple`.

    Without it: fairseq drops them, silently, in every split (data/data_utils.py:345): of 100 test sentences 96 are
    translated, a small validation set is empty, training never sees its longest batch. Goes when fairseq keeps them.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def batch_by_size(indices: Any, *args: Any, **kwargs: Any) -> Any:
            if len(indices) == 0:
                return []
            batches = original(indices, *args, **kwargs)
            kept = sum(len(batch) for batch in batches)
            # Batches are consecutive pieces of the indices, so what is missing is their end.
            return batches if kept == len(indices) else [*batches, np.asarray(indices)[kept:]]

        return batch_by_size

    replace(data_utils, "batch_by_size", make)


def exact_batch_size() -> None:
    """Make batches of `--batch-size` rows, also where that is no multiple of `--required-batch-size-multiple` (8).

    Without it: `--batch-size 20` trains with 16 rows, silently (data/data_utils.py:345). The multiple becomes the
    greatest common divisor of the two: `--batch-size 20` gives 20 rows, and multiples of 4 where `--max-tokens` cuts; a
    batch size that is a multiple of 8, or none, changes nothing. Goes when fairseq rounds no batch size down.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def batch_by_size(
            self: Any,
            indices: Any,
            max_tokens: int | None = None,
            max_sentences: int | None = None,
            required_batch_size_multiple: int = 1,
        ) -> Any:
            multiple = math.gcd(max_sentences or 0, required_batch_size_multiple)
            return original(self, indices, max_tokens, max_sentences, multiple)

        return batch_by_size

    replace(FairseqDataset, "batch_by_size", make)


def eval_lm_blocks() -> None:
    """Refuse `fairseq-eval-lm --tokens-per-sample` above what the model can read.

    Without it: fairseq drops every block that is too long (tasks/language_modeling.py:366), prints the perplexity of
    what is left, 7 tokens of a test set, and exits with 0. Sentences (`--sample-break-mode eos`) that are too long stay
    left out and counted, as in every command. Goes when eval-lm heeds `--skip-invalid-size-inputs-valid-test`.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def eval_lm_dataloader(
            self: Any, dataset: Any, *args: Any, max_positions: Any = None, context_window: int = 0, **kwargs: Any
        ) -> Any:
            if isinstance(max_positions, int | float) and self.args.sample_break_mode != "eos":
                require_short_blocks(np.asarray(dataset.sizes) + context_window, max_positions)
            kwargs.update(max_positions=max_positions, context_window=context_window)
            return original(self, dataset, *args, **kwargs)

        return eval_lm_dataloader

    replace(LanguageModelingTask, "eval_lm_dataloader", make)


def require_short_blocks(sizes: np.ndarray, limit: float) -> None:
    """Raise if any block of a language model's data is longer than its model can read."""
    too_long = int((sizes > limit).sum())
    if too_long:
        raise ValueError(
            f"--tokens-per-sample: needs blocks of at most {limit:g} tokens, which is what the model was trained with; "
            f"got {too_long} of {len(sizes)} blocks above that, up to {sizes.max()} tokens, and would leave them out. "
            f"Use --tokens-per-sample {limit:g} --sample-break-mode none."
        )


def empty_split() -> None:
    """Name the file of a split without any sentence.

    Without it: `cannot mmap an empty file` (data/indexed_dataset.py:497), in training, translation and scoring.
    Goes when fairseq names it.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_dataset(path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
            file = indexed_dataset.data_file_path(path)
            if impl == "mmap" and os.path.isfile(file) and os.path.getsize(file) == 0:
                raise ValueError(
                    f"{file}: needs at least one sentence; got an empty file. Use a text that is not empty, with "
                    "fairseq-preprocess."
                )
            return original(path, impl, *args, **kwargs)

        return make_dataset

    replace(indexed_dataset, "make_dataset", make)


def reading_ahead_ends() -> None:
    """End the threads that read batches ahead before Python ends.

    Without it: a command that ends while such a thread runs torch's code is aborted with `terminate called without an
    active exception` (signal 6, status 134), whether the command was done or had an error to report; the thread is a
    daemon, which Python before 3.14 unwinds through C++ (data/iterators.py:709). Goes with Python 3.13.
    """
    atexit.unregister(end_reading_ahead)
    atexit.register(end_reading_ahead)


def end_reading_ahead() -> None:
    """Make every thread that reads batches ahead stop after the batch it is at, and wait for that batch."""
    threads = [thread for thread in threading.enumerate() if isinstance(thread, iterators.BackgroundConsumer)]
    for thread in threads:
        thread._max_len = 0
        with thread._queue.not_full:  # where the thread may wait for a place that nobody makes
            thread._queue.maxsize = sys.maxsize
            thread._queue.not_full.notify_all()
    for thread in threads:
        thread.join(SECONDS_FOR_A_BATCH)
