"""Reads one tensor of a safetensors file: a JSON header and raw bytes, without executable parts.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_tiedemb.checkpoints.text import parse_json

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LARGEST_HEADER = 100_000_000  # bytes, the format's limit
SHOWN = 8  # names of tensors in an error message


def is_tensor_file(path: Path) -> bool:
    """Whether a file is in safetensors format, by its first nine bytes and its size."""
    with path.open("rb") as file:
        start = file.read(9)
    return len(start) == 9 and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8 and start[8:] == b"{"


def read_matrix(path: Path, name: str | None) -> Tensor:
    """Reads the matrix called `name`, as float32; ValueError if the file is damaged or has no such matrix."""
    with path.open("rb") as file:
        size = path.stat().st_size
        length = int.from_bytes(file.read(8), "little")
        try:
            if length > min(size - 8, LARGEST_HEADER):
                raise ValueError(f"a header of {length:,} bytes in {size:,}")
            header = parse_json(file.read(length))
            shapes = {key: _whole(each["shape"]) for key, each in header.items() if key != "__metadata__"}
            matrices = [key for key, shape in shapes.items() if len(shape) == 2 and header[key]["dtype"] in TYPES]
            places = {key: _place(header[key], size - 8 - length) for key in matrices}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            got = f"{path} ({type(error).__name__}: {error})"
            raise ValueError(f"TABLE: needs a whole safetensors file; got {got}. Use another.") from None
        if name not in matrices:
            named = sorted(matrices, key=lambda key: -max(shapes[key]))
            shown = ", ".join(f"{key} {tuple(shapes[key])}" for key in named[:SHOWN])
            more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
            raise ValueError(f"--tensor: needs the name of a matrix of {path}; got {name}. Use one of {shown}{more}.")
        start, stop = places[name]
        file.seek(8 + length + start)
        data = bytearray(file.read(stop - start))
    return torch.frombuffer(data, dtype=TYPES[header[name]["dtype"]]).view(*shapes[name]).float()


def _place(entry: dict[str, Any], room: int) -> list[int]:
    """The first byte of a matrix and the one behind its last, which must be in the file, as many as its shape says."""
    start, stop = _whole(entry["data_offsets"])
    needed = math.prod(entry["shape"]) * TYPES[entry["dtype"]].itemsize
    if not (stop <= room and stop - start == needed > 0):
        raise ValueError(f"bytes {start} to {stop} of {room}, for a tensor of {needed}")
    return [start, stop]


def _whole(values: Any) -> list[int]:
    """The values of a shape or of a place in the file."""
    if not (isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)):
        raise ValueError(f"{str(values)[:60]} where whole numbers belong")
    return values
