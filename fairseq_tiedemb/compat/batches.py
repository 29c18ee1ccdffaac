"""Data: today's numpy reads it, no sentence is lost, batches have their size, missing data is named."""

import atexit
import math
import os
import sys
import threading
import types
from typing import Any
from unittest import mock

import numpy as np
from fairseq import tasks
from fairseq.data import FairseqDataset, data_utils, indexed_dataset, iterators
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks.language_modeling import LanguageModelingTask

from .mending import mend, mend_now

SECONDS_FOR_A_BATCH = 10  # at the end of a command, which a data worker that hangs must not keep for ever


@mend_now
def numpy_names() -> None:
    """Restore `np.compat.long`, `np.float` and `np.int`.

    Without it: AttributeError in language models with `--sample-break-mode eos` (data/token_block_dataset.py:125), in
    bucketing (data/language_pair_dataset.py:292), in masking (data/data_utils.py:524, 1107) and in the CRF layer.
    Goes with fairseq's last use of the names.
    """
    for name, value in (("compat", types.SimpleNamespace(long=int)), ("float", float), ("int", int)):
        if not hasattr(np, name):
            setattr(np, name, value)


@mend(np, "percentile")
def numpy_percentile(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Translate `np.percentile(interpolation=...)` to `method=`, its name since numpy 1.22.

    Without it: TypeError from `--num-batch-buckets` from numpy 2.4 on (data/data_utils.py:880). Goes with this call.
    """
    if "interpolation" in kwargs:
        kwargs["method"] = kwargs.pop("interpolation")
    return original(*args, **kwargs)


@mend(data_utils, "batch_by_size")
def last_batch(original: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep the leftover sentences if their number is not a multiple of `--required-batch-size-multiple`.

    Without it: fairseq silently drops them in every split (data/data_utils.py:345): 96 of 100 test sentences are
    translated, training never sees its longest batch; and a text of more than `--max-tokens` ends in an AssertionError.
    Goes when fairseq keeps them, and names the flag.
    """
    if len(indices) == 0:
        return []
    try:
        batches = original(indices, *args, **kwargs)
    except AssertionError as error:
        got = (*args[2:3], kwargs.get("max_tokens"))[0]
        needs = "the tokens of the longest text at least, and --max-tokens-valid, too"
        raise ValueError(f"--max-tokens: needs {needs}; got {got} ({error}). Use more.") from error
    kept = sum(len(batch) for batch in batches)
    # Batches are consecutive slices of the indices, so that the missing indices are the last ones.
    return batches if kept == len(indices) else [*batches, np.asarray(indices)[kept:]]


@mend(FairseqDataset, "batch_by_size")
def exact_batch_size(
    original: Any,
    self: Any,
    indices: Any,
    max_tokens: int | None = None,
    max_sentences: int | None = None,
    required_batch_size_multiple: int = 1,
) -> Any:
    """Make batches of `--batch-size` rows even if that is not a multiple of `--required-batch-size-multiple` (8).

    Without it: `--batch-size 20` silently trains with 16 rows (data/data_utils.py:345). Here the multiple becomes the
    greatest common divisor of both: 20 rows, and multiples of 4 where `--max-tokens` limits a batch. Multiples of 8,
    and no batch size, change nothing. Goes when fairseq stops rounding batch sizes down.
    """
    multiple = math.gcd(max_sentences or 0, required_batch_size_multiple)
    return original(self, indices, max_tokens, max_sentences, multiple)


@mend(LanguageModelingTask, "eval_lm_dataloader")
def eval_lm_blocks(original: Any, self: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse `fairseq-eval-lm --tokens-per-sample` above the model's maximum length.

    Without it: fairseq drops all longer blocks (tasks/language_modeling.py:366), prints the perplexity of the rest,
    which may be 7 tokens of a test set, or none, and exits with 0. Some overlong sentences (`--sample-break-mode eos`)
    are dropped and counted, as in every command. Goes when it heeds `--skip-invalid-size-inputs-valid-test`.
    """
    limit = kwargs.get("max_positions")
    if isinstance(limit, int | float):
        sizes = np.asarray(dataset.sizes) + kwargs.get("context_window", 0)
        if (sizes > limit).sum() >= (max(1, len(sizes)) if self.args.sample_break_mode == "eos" else 1):
            needs = f"blocks of at most {limit:g} tokens, which is what the model was trained with"
            got = f"{(sizes > limit).sum()} of {len(sizes)} blocks above that, up to {sizes.max()} tokens"
            use = f"--tokens-per-sample {limit:g} --sample-break-mode none"
            raise ValueError(f"--tokens-per-sample: needs {needs}; got {got}, and would leave them out. Use {use}.")
    return original(self, dataset, *args, **kwargs)


@mend(SequenceScorer, "generate")
def eval_lm_words(original: Any, self: SequenceScorer, models: Any, sample: Any, **kwargs: Any) -> Any:
    """Give each word of a language model's text the score at its place, `<pad>` too, and refuse what is no probability.

    Without it: fairseq takes every `<pad>` of a text out of the words of a row, and as many scores off its end
    (sequence_scorer.py:121), so that perplexity depends on where rows end, on `--tokens-per-sample`. It leaves words of
    probability 0 out of the perplexity, after an error of logging (fairseq_cli/eval_lm.py:140), and prints `nan`.
    Goes when fairseq cuts rows by their lengths, and counts all words.
    """
    lengths = sample["net_input"].get("src_lengths")
    # In translation a row's end is known; in from_pretrained's `score` the last word has no target.
    if lengths is None or "prev_output_tokens" in sample["net_input"] or "ntokens" not in sample:
        return original(self, models, sample, **kwargs)
    with mock.patch.object(self, "pad", -1):  # which is no word
        rows = original(self, models, sample, **kwargs)
    # Lengths are with the words of a --context-window, which are not scored again.
    starts = sample.get("start_indices", [0] * len(lengths))
    for [row], start, length in zip(rows, starts, lengths.tolist(), strict=False):
        row["tokens"], scores = (row[key][: length - start] for key in ("tokens", "positional_scores"))
        row["positional_scores"], row["score"] = scores, scores.mean()
        if wrong := scores.isfinite().logical_not().nonzero().flatten().tolist():
            score, word = scores[wrong[0]], models[0].decoder.dictionary[int(row["tokens"][wrong[0]])]
            diverged = "a checkpoint from before the training diverged, or no --fp16"
            needs = "a model that gives each word of the text a probability"
            no_start = ", or no --add-bos-token" if word == "<s>" else ""
            use = diverged if score.isnan() else f"a text without {word!r}{no_start}"
            raise ValueError(f"--path: needs {needs}; got {score.exp().item():g} for {word!r}. Use {use}.")
    return rows


@mend(indexed_dataset, "make_dataset")
def empty_split(original: Any, path: str, impl: str, *args: Any, **kwargs: Any) -> Any:
    """Name the file of a split without sentences.

    Without it: `cannot mmap an empty file` (data/indexed_dataset.py:507). Goes when fairseq names the file.
    """
    file = indexed_dataset.data_file_path(path)
    if impl == "mmap" and os.path.isfile(file) and os.path.getsize(file) == 0:
        use = "a text that is not empty, with fairseq-preprocess"
        raise ValueError(f"{file}: needs at least one sentence; got an empty file. Use {use}.")
    return original(path, impl, *args, **kwargs)


@mend(tasks, "setup_task")
def data_folder(original: Any, cfg: Any, **kwargs: Any) -> Any:
    """Ask for the missing data folder in fairseq-hydra-train.

    Without it: TypeError, `argument of type 'NoneType' is not iterable` (utils.py:54), or another that depends on the
    task. Goes when the tasks' `data` is mandatory.
    """
    if getattr(cfg, "data", "") is None:
        use = "task.data=/path/to/data-bin (fairseq-hydra-train)"
        raise ValueError(f"task.data: needs the folder of fairseq-preprocess; got none. Use {use}.")
    return original(cfg, **kwargs)


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


@mend_now
def reading_ahead_ends() -> None:
    """End the threads that read batches ahead before Python ends.

    Without it: a command that ends while such a thread runs torch's code is aborted with `terminate called without an
    active exception` (signal 6, status 134), whether the command was done or had an error to report; the thread is a
    daemon, which Python before 3.14 unwinds through C++ (data/iterators.py:709). Goes with Python 3.13.
    """
    atexit.register(end_reading_ahead)
