"""A corpus as one stream of tokens, cut into rows that are read side by side, chunk by chunk."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary, FairseqDataset, data_utils
from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, data_file_path
from torch import Tensor

# Tokens that are looked through at a time.
BLOCK = 1 << 20


def empty_split(split: str) -> ValueError:
    """The error for a split without any token."""
    return ValueError(f"split {split}: needs at least one token; got none. Use a file that is not empty.")


def open_stream(path: str, dictionary: Dictionary, *, impl: str | None = None, combine: bool = False) -> "TokenStream":
    """The binarised text of a split as one stream.

    Args:
        path: of its .bin and .idx files, without these endings; its last part names the split in errors.
        dictionary: that it was made with.
        impl: fairseq's ``--dataset-impl``.
        combine: with the numbered files of the split, as fairseq reads ``train``, ``train1``, ...

    Raises:
        FileNotFoundError: if there are no such files.
        ValueError: see ``TokenStream``.
    """
    split, text = os.path.basename(path), Path(f"{path}.bin")
    if text.is_file() and text.stat().st_size == 0:  # numpy maps no empty file
        raise empty_split(split)
    # "lazy" is one open file, whose place the data workers would move for each other.
    kind = "cached" if impl == "lazy" else impl
    sentences = data_utils.load_indexed_dataset(path, dictionary, kind, combine=combine)
    if sentences is None:
        raise FileNotFoundError(f"split {split}: needs the files {path}.bin and {path}.idx; found none.")
    return TokenStream(sentences, dictionary, split)


class TokenStream(FairseqDataset):
    """One split of a corpus: its sentences, each with its end of sentence, one after the other.

    Args:
        sentences: fairseq's indexed dataset.
        dictionary: for the symbols of padding and end of sentence, and to check that the corpus was made with it.
        split: name of the split, for error messages.

    Raises:
        ValueError: if the split is empty, has another length than its .idx file says, or an index that the dictionary
            lacks.
    """

    def __init__(self, sentences: Any, dictionary: Dictionary, split: str):
        self.sentences = sentences
        self.pad, self.eos = dictionary.pad(), dictionary.eos()
        self.split = split
        self.ends = np.cumsum(sentences.sizes)
        self.length = int(self.ends[-1]) if len(self.ends) else 0
        if self.length == 0:
            raise empty_split(split)
        self._check_size()
        if isinstance(sentences, MMapIndexedDataset):
            largest = int(self._file().max())
        else:
            if sentences.supports_prefetch:
                sentences.prefetch(range(len(sentences)))
            largest = max(int(sentence.max()) for sentence in sentences if len(sentence))
        if largest >= len(dictionary):
            raise ValueError(
                f"split {split}: needs word indices below {len(dictionary)}, the size of dict.txt; got {largest}. "
                "Use the dict.txt that fairseq-preprocess wrote beside it."
            )

    def __len__(self) -> int:
        return self.length

    def _check_size(self) -> None:
        if isinstance(self.sentences, MMapIndexedDataset):
            found = memoryview(self.sentences._bin_buffer).nbytes
            bytes_each = np.dtype(self.sentences._index.dtype).itemsize
        elif isinstance(self.sentences, IndexedDataset):
            found = os.path.getsize(data_file_path(self.sentences.path))
            bytes_each = self.sentences.element_size
        else:  # several files, or text
            return
        if found != self.length * bytes_each:
            raise ValueError(
                f"split {self.split}: needs {self.length} tokens, as its .idx file says; got {found / bytes_each:g} in "
                "its .bin file. Use the files as fairseq-preprocess wrote them."
            )

    def tokens(self, start: int, stop: int) -> Tensor:
        """The tokens [start, stop) of the stream."""
        if isinstance(self.sentences, MMapIndexedDataset):
            return torch.from_numpy(self._file()[start:stop].astype(np.int64))
        first, last = np.searchsorted(self.ends, [start, stop - 1], side="right")
        sentences = torch.cat([self.sentences[i] for i in range(first, last + 1)]).long()
        before = start - (int(self.ends[first - 1]) if first else 0)
        return sentences[before : before + stop - start]

    def count(self, word: int) -> int:
        """How often a word comes."""
        starts = range(0, self.length, BLOCK)
        return sum(int(self.tokens(start, min(start + BLOCK, self.length)).eq(word).sum()) for start in starts)

    def _file(self) -> np.ndarray:
        """The numbers in the .bin file, which has one sentence after the other; nothing is copied.

        fairseq itself reads whole sentences, and a text without line ends is only one.
        """
        file_size = memoryview(self.sentences._bin_buffer).nbytes
        dtype = np.dtype(self.sentences._index.dtype)
        return np.frombuffer(self.sentences._bin_buffer, dtype, file_size // dtype.itemsize)

    def pair(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Input and target of the tokens [start, stop): each is predicted from the one before, the first from </s>."""
        if start:
            tokens = self.tokens(start - 1, stop)
            return tokens[:-1], tokens[1:]
        target = self.tokens(0, stop)
        return torch.cat((target.new_tensor([self.eos]), target[:-1])), target


class StreamRows(FairseqDataset):
    """A stream cut into rows of equal length (but for one token) and those into chunks of ``chunk`` tokens.

    Item ``step * rows + row`` is chunk number ``step`` of a row. Every token of the stream is the target of exactly
    one item. Where rows differ in length the shorter ones' last chunk is padded, or empty.

    Args:
        stream: the tokens.
        rows: number of rows over all processes.
        chunk: tokens of a row in a batch.

    Raises:
        ValueError: if the stream has fewer tokens than rows.
    """

    def __init__(self, stream: TokenStream, rows: int, chunk: int):
        if len(stream) < rows:
            raise ValueError(
                f"--batch-size: needs at most {len(stream)} rows over all processes, one for each token of split "
                f"{stream.split}; got {rows}. Use a smaller one (--batch-size-valid in validation) or a longer text."
            )
        self.stream, self.rows, self.chunk = stream, rows, chunk
        self.bounds = [row * len(stream) // rows for row in range(rows + 1)]
        longest = max(stop - start for start, stop in zip(self.bounds, self.bounds[1:], strict=False))
        self.steps = -(-longest // chunk)

    def __len__(self) -> int:
        return self.steps * self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        step, row = divmod(index, self.rows)
        start = min(self.bounds[row] + step * self.chunk, self.bounds[row + 1])
        stop = min(start + self.chunk, self.bounds[row + 1])
        source, target = self.stream.pair(start, stop) if start < stop else 2 * (torch.empty(0, dtype=torch.long),)
        is_last = step == self.steps - 1
        return {"id": index, "position": step * self.chunk, "is_last": is_last, "source": source, "target": target}

    def num_tokens(self, index: int) -> int:
        return self.chunk

    def size(self, index: int) -> int:
        return self.chunk

    def batches(self, num_shards: int) -> list[list[int]]:
        """Item numbers of each batch: step after step, and in a step shard after shard.

        fairseq deals batches out to shards in turn, so each shard reads its own rows in order, and all shards have the
        same number of batches.
        """
        per_shard = self.rows // num_shards
        return [list(range(first, first + per_shard)) for first in range(0, len(self), per_shard)]

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """A batch of one chunk of each row, with the chunk's position in the rows, and whether it is their last."""
        lengths = torch.tensor([len(sample["target"]) for sample in samples])
        # Rows that have all ended, while another process's have one token left, still make a step.
        columns = max(int(lengths.max()), 1)
        sources, targets = (
            torch.stack([F.pad(each[key], (0, columns - len(each[key])), value=self.stream.pad) for each in samples])
            for key in ("source", "target")
        )
        return {
            "id": torch.tensor([sample["id"] for sample in samples]),
            "nsentences": len(samples),
            "ntokens": int(lengths.sum()),
            "is_last": samples[0]["is_last"],
            "net_input": {
                "src_tokens": sources,
                "src_lengths": lengths,
                "stream_position": samples[0]["position"],
            },
            "target": targets,
        }
