"""Reads safetensors files, of which a file's names and shapes are known without its numbers."""

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

FLOATS = {"F64", "F32", "F16", "BF16"}
SHOWN = 8  # names of tensors in an error message


def is_tensor_file(path: Path) -> bool:
    """Whether a file is in safetensors format, by its first nine bytes and its size."""
    with path.open("rb") as file:
        start = file.read(9)
    return len(start) == 9 and int.from_bytes(start[:8], "little") <= path.stat().st_size - 8 and start[8:] == b"{"


def read_shapes(path: Path) -> dict[str, list[int]]:
    """Returns the shapes of a file's matrices of floating-point numbers by name; ValueError if the file is damaged."""
    try:
        with safe_open(path, "pt") as file:
            entries = {name: file.get_slice(name) for name in file.keys()}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"TABLE: needs a whole safetensors file; got {path} ({error}). Use another.") from None
    shapes = {name: entry.get_shape() for name, entry in entries.items() if entry.get_dtype() in FLOATS}
    return {name: shape for name, shape in shapes.items() if len(shape) == 2 and 0 not in shape}


def read_matrix(path: Path, name: str | None) -> Tensor:
    """Reads the matrix called `name`, as float32; ValueError if the file is damaged or has no such matrix."""
    shapes = read_shapes(path)
    if name not in shapes:
        named = sorted(shapes, key=lambda key: -max(shapes[key]))
        shown = ", ".join(f"{key} {tuple(shapes[key])}" for key in named[:SHOWN])
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        raise ValueError(f"--tensor: needs the name of a matrix of {path}; got {name}. Use one of {shown}{more}.")
    with safe_open(path, "pt") as file:
        return file.get_tensor(name).float()
