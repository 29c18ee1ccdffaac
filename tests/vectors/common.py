"""Tables of word vectors for tests: on disk in every form that is read, and exact oracles."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_tiedemb.cli import create_parser
from fairseq_tiedemb.vectors.word_table import WordTable

Array = np.ndarray


def command(name: str, *args: object) -> int:
    """Runs a command of `fairseq-tiedemb` in this process; its errors come through."""
    arguments = create_parser().parse_args([name, *map(str, args)])
    return arguments.run(arguments)


def table(words: Sequence[str] | str, rows: Any, name: str = "table") -> WordTable:
    words = words.split() if isinstance(words, str) else list(words)
    return WordTable(name, words, np.array(rows, np.float32))


def random_table(count: int, width: int, seed: int = 1) -> WordTable:
    rows = np.random.default_rng(seed).standard_normal((count, width))
    return table([f"w{number}" for number in range(count)], rows)


def write_dictionary(path: Path, words: Sequence[str]) -> Path:
    """dict.txt, the first word the most frequent."""
    path.write_text("".join(f"{word} {len(words) - row}\n" for row, word in enumerate(words)), encoding="utf-8")
    return path


def write_text(path: Path, words: Sequence[str], rows: Any) -> Path:
    """Vectors as GloVe's are."""
    lines = (f"{word} {' '.join(map(repr, map(float, row)))}\n" for word, row in zip(words, rows, strict=True))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_checkpoint(
    path: Path, model: dict[str, Tensor], words: Sequence[str] | None = None, **settings: object
) -> Path:
    """A checkpoint of these tensors and settings of the model; with words, dict.txt beside it."""
    cfg = {"model": {"_name": "tied_lstm_lm", **settings}, "task": {"_name": "language_modeling", "data": ""}}
    torch.save({"cfg": cfg, "model": model}, path)
    if words is not None:
        write_dictionary(path.parent / "dict.txt", words)
    return path


TYPE_NAMES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}


def write_safetensors(path: Path, tensors: dict[str, Tensor], **changes: dict[str, Any]) -> Path:
    """The format as its documentation has it: length, header, bytes; changes are of a tensor's header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        start, dtype = len(data), TYPE_NAMES.get(tensor.dtype, "I64")
        data += tensor.contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, len(data)]}
        header[name] |= changes.get(name, {})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


# --- oracles, in the most boring way, float64 -------------------------------------------------------------------------


def exact_cosine(first: Array, second: Array) -> float:
    first, second = first.astype(np.float64), second.astype(np.float64)
    return float(first @ second) / float(np.sqrt((first @ first) * (second @ second)))


def exact_ranks(values: Sequence[float]) -> Array:
    """1 + how many are less + half of how many others are equal."""
    values = np.asarray(values, np.float64)
    return np.array([1 + (values < x).sum() + ((values == x).sum() - 1) / 2 for x in values])


def exact_spearman(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.corrcoef(exact_ranks(first), exact_ranks(second))[0, 1])


def exact_pairwise(rows: Array) -> list[float]:
    return [exact_cosine(rows[i], rows[j]) for i in range(len(rows)) for j in range(i + 1, len(rows))]
