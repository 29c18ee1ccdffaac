"""Reads one tensor of a safetensors file: a JSON header and raw bytes, without executable parts.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_tiedemb.checkpoints.json_text import parse_json

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LARGEST_HEADER = 100_000_000  # bytes, the format's limit
SHOWN = 8  # names of tensors in an error message


def is_tensor_file(start: bytes, size: int) -> bool:
    """Whether a file is in safetensors format, by its first nine bytes and its size."""
    return len(start) == 9 and int.from_bytes(start[:8], "little") <= size - 8 and start[8:] == b"{"


class Entry(NamedTuple):
    """What a header says of a tensor: its type, its shape, its first byte and the one behind its last."""

    dtype: str
    shape: list[int]
    start: int
    stop: int

    @property
    def is_matrix(self) -> bool:
        """Whether there are rows of numbers."""
        return len(self.shape) == 2 and self.dtype in TYPES


def read_matrix(path: Path, name: str | None) -> Tensor:
    """Reads the matrix called `name`, as float32.

    Raises:
        ValueError: if the file is damaged or has no such matrix, or the name is None.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        try:
            if length > min(size - 8, LARGEST_HEADER):
                raise ValueError(f"a header of {length:,} bytes in {size:,}")
            header = parse_json(file.read(length))
            entries = {key: _entry(each, size - 8 - length) for key, each in header.items() if key != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"TABLE: needs a whole safetensors file; got {path} ({type(error).__name__}: {error}). Use another."
            ) from None
        if name not in entries or not entries[name].is_matrix:
            matrices = {key: each.shape for key, each in entries.items() if each.is_matrix}
            named = sorted(matrices, key=lambda key: -max(matrices[key]))
            shown = ", ".join(f"{key} {tuple(matrices[key])}" for key in named[:SHOWN])
            more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
            raise ValueError(f"--tensor: needs the name of a matrix of {path}; got {name}. Use one of {shown}{more}.")
        dtype, shape, start, stop = entries[name]
        file.seek(8 + length + start)
        data = bytearray(file.read(stop - start))
    return torch.frombuffer(data, dtype=TYPES[dtype]).view(*shape).float()


def _entry(header: dict[str, Any], room: int) -> Entry:
    """Checks what a header says of a tensor, whose bytes must be in the file, and as many as its shape says."""
    entry = Entry(header["dtype"], _whole(header["shape"]), *_whole(header["data_offsets"]))
    if entry.is_matrix:
        needed = math.prod(entry.shape) * TYPES[entry.dtype].itemsize
        if not (entry.stop <= room and entry.stop - entry.start == needed > 0):
            raise ValueError(f"bytes {entry.start} to {entry.stop} of {room}, for a tensor of {needed}")
    return entry


def _whole(values: Any) -> list[int]:
    """The values of a shape or of a place in the file."""
    if not (isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)):
        raise ValueError(f"{str(values)[:60]} where whole numbers belong")
    return values
