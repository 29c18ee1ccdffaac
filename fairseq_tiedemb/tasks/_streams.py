"""A corpus as one stream of tokens, cut into parallel rows that are read chunk by chunk."""

import os
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary, FairseqDataset, data_utils, iterators
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, data_file_path
from torch import Tensor

BLOCK = 1 << 20  # tokens that are looked through at a time


# What `epoch_batches` takes of fairseq's options, which has more: for the filtering and sorting of samples.
OF_ITERATOR = ("num_shards", "shard_id", "num_workers", "seed", "epoch", "skip_remainder_batch")


def epoch_batches(
    dataset: FairseqDataset, batches: Any, *, shuffles: bool, data_buffer_size: int = 0, **options: Any
) -> iterators.EpochBatchIterator:
    """fairseq's iterator over batches of a dataset's indices; with ``shuffles`` in another order every epoch."""
    return iterators.EpochBatchIterator(
        dataset=dataset,
        collate_fn=dataset.collater,
        batch_sampler=batches,
        buffer_size=data_buffer_size,
        disable_shuffling=not shuffles,
        # Persistent workers would outlive their loader, which is made anew every epoch.
        persistent_workers=False,
        **{name: options[name] for name in OF_ITERATOR if name in options},
    )


def open_stream(path: str, dictionary: Dictionary, *, impl: str | None = None, combine: bool = False) -> "TokenStream":
    """Opens the binarised text of a split, ``path`` without .bin and .idx, as one stream.

    ``impl`` is fairseq's ``--dataset-impl``; ``combine`` appends the split's numbered files (``train1``, ...). Raises
    FileNotFoundError if the files are missing, and ValueError as ``TokenStream``.
    """
    split = os.path.basename(path)
    # "lazy" keeps one open file, whose position the data workers would move for one another.
    sentences = data_utils.load_indexed_dataset(path, dictionary, "cached" if impl == "lazy" else impl, combine=combine)
    if sentences is None:
        raise FileNotFoundError(f"split {split}: needs the files {path}.bin, .idx; found none. Use another folder.")
    return TokenStream(sentences, dictionary, split)


class TokenStream(FairseqDataset):
    """The sentences of a split, fairseq's indexed dataset, concatenated with their ``</s>``.

    Raises ValueError if the split is empty, its length differs from its .idx file, or the dictionary lacks an index.
    """

    def __init__(self, sentences: Any, dictionary: Dictionary, split: str):
        self.sentences, self.dictionary, self.split = sentences, dictionary, split
        self.ends = np.cumsum(sentences.sizes)
        self.length = int(self.ends[-1]) if len(self.ends) else 0
        if self.length == 0:
            raise ValueError(f"split {split}: needs at least one token; got none. Use a file that is not empty.")
        if isinstance(sentences, MMapIndexedDataset):
            self._check_size(memoryview(sentences._bin_buffer).nbytes, np.dtype(sentences._index.dtype).itemsize)
            largest = int(self._file().max())
        else:
            if isinstance(sentences, IndexedDataset):
                self._check_size(os.path.getsize(data_file_path(sentences.path)), sentences.element_size)
            if sentences.supports_prefetch:
                sentences.prefetch(range(len(sentences)))
            largest = max(int(sentence.max()) for sentence in sentences if len(sentence))
        if largest >= len(dictionary):
            needs = f"word indices below {len(dictionary)}, the size of dict.txt"
            use = "the dict.txt that fairseq-preprocess wrote beside it"
            raise ValueError(f"split {split}: needs {needs}; got {largest}. Use {use}.")

    def __len__(self) -> int:
        return self.length

    def _check_size(self, size: int, token_bytes: int) -> None:
        if size != self.length * token_bytes:
            needs, got = f"{self.length} tokens, as its .idx file says", f"{size / token_bytes:g} in its .bin file"
            use = "the files as fairseq-preprocess wrote them"
            raise ValueError(f"split {self.split}: needs {needs}; got {got}. Use {use}.")

    def tokens(self, start: int, stop: int) -> Tensor:
        """The tokens [start, stop) of the stream."""
        if isinstance(self.sentences, MMapIndexedDataset):
            return torch.from_numpy(self._file()[start:stop].astype(np.int64))
        first, last = np.searchsorted(self.ends, [start, stop - 1], side="right")
        sentences = torch.cat([self.sentences[i] for i in range(first, last + 1)]).long()
        before = start - (int(self.ends[first - 1]) if first else 0)
        return sentences[before : before + stop - start]

    def counts(self) -> np.ndarray:
        """Counts (V,), int64, of the dictionary's words by index."""
        size = len(self.dictionary)
        parts = (self.tokens(start, min(start + BLOCK, self.length)) for start in range(0, self.length, BLOCK))
        return sum((np.bincount(part, minlength=size) for part in parts), np.zeros(size, np.int64))

    def word_counts(self) -> np.ndarray:
        """``counts`` with 0 for fairseq's special symbols."""
        counts = self.counts()
        counts[: self.dictionary.nspecial] = 0
        return counts

    def _file(self) -> np.ndarray:
        """The token indices in the .bin file, memory-mapped.

        fairseq reads whole sentences instead, and a text without line ends is a single sentence.
        """
        return np.frombuffer(self.sentences._bin_buffer, self.sentences._index.dtype)

    def pair(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets for the tokens [start, stop); an input is the previous token, at first ``</s>``."""
        tokens = self.tokens(max(start - 1, 0), stop)
        if start == 0:
            tokens = torch.cat((tokens.new_tensor([self.dictionary.eos()]), tokens))
        return tokens[:-1], tokens[1:]


def random_lengths(chunk: int, length: int, seed: tuple[int, ...]) -> list[int]:
    """Ends of chunks of random lengths, of which the last is ``length`` or more.

    A chunk has about ``chunk`` tokens, one of twenty about half: drawn with a standard deviation of 5, and at least 5.

    Source: Merity et al. 2018, section 4.1.
    """
    rng, ends = np.random.default_rng(seed), [0]
    while ends[-1] < length:
        mean = chunk if rng.random() < 0.95 else chunk / 2
        ends.append(ends[-1] + max(5, round(rng.normal(mean, 5))))
    return ends[1:]


class StreamRows(FairseqDataset):
    """A stream cut into rows of equal length (within one token), and the rows into chunks of ``chunk`` tokens.

    Item ``step * rows + row`` is chunk ``step`` of a row. Every token of the stream is the target of exactly one item.
    The last chunk of a shorter row is padded, or empty. ``rows`` counts the rows of all processes. With ``random_by``,
    a seed, ``random_lengths`` draws the chunks. Raises ValueError if the stream has fewer tokens than rows.
    """

    def __init__(self, stream: TokenStream, rows: int, chunk: int, *, random_by: tuple[int, ...] | None = None):
        if len(stream) < rows:
            needs = f"at most {len(stream)} rows over all processes, the number of tokens in split {stream.split}"
            use = "a smaller one (--batch-size-valid in validation) or a longer text"
            raise ValueError(f"--batch-size: needs {needs}; got {rows}. Use {use}.")
        self.stream, self.rows = stream, rows
        self.bounds = [row * len(stream) // rows for row in range(rows + 1)]
        longest = max(stop - start for start, stop in pairwise(self.bounds))
        ends = range(chunk, longest + chunk, chunk) if random_by is None else random_lengths(chunk, longest, random_by)
        self.starts = [0, *(min(end, longest) for end in ends)]
        self.steps = len(self.starts) - 1

    def __len__(self) -> int:
        return self.steps * self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        step, row = divmod(index, self.rows)
        start, stop = (min(self.bounds[row] + self.starts[end], self.bounds[row + 1]) for end in (step, step + 1))
        source, target = self.stream.pair(start, stop) if start < stop else 2 * (torch.empty(0, dtype=torch.long),)
        is_last = step == self.steps - 1
        return {"id": index, "position": self.starts[step], "is_last": is_last, "source": source, "target": target}

    def batches(self, num_shards: int) -> list[list[int]]:
        """Item numbers of the batches: step by step, and within a step shard by shard.

        fairseq deals batches to shards in turn: a shard reads its own rows in order, in as many batches as the others.
        """
        per_shard = self.rows // num_shards
        return [list(range(first, first + per_shard)) for first in range(0, len(self), per_shard)]

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch with one chunk per row, the chunk's position in the rows, and whether it is the last chunk."""
        lengths, pad = torch.tensor([len(sample["target"]) for sample in samples]), self.stream.dictionary.pad()
        sources, targets = (
            # At least one column: all rows here may have ended while another process has one token left.
            data_utils.collate_tokens([sample[key] for sample in samples], pad, pad_to_length=1)
            for key in ("source", "target")
        )
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "is_last": samples[0]["is_last"],
            "net_input": {"src_tokens": sources, "src_lengths": lengths, "stream_position": samples[0]["position"]},
            "target": targets,
        }
