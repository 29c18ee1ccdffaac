"""Checkpoints whose pickles are written opcode by opcode, so that they can say what no saving program would."""

import io
import pickle
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

import fairseq_tiedemb.plugin  # noqa: F401

NOTHING = object()


@dataclass(frozen=True)
class Global:
    """A class or function by its name."""

    name: str


@dataclass
class Call:
    """`name(*arguments)`, or `name.__new__(name, *arguments)`, and then what `__setstate__` is given."""

    name: str
    arguments: Any
    state: Any = NOTHING
    new: bool = False


@dataclass
class Saved:
    """The storage of a tensor."""

    kind: str = "torch.FloatStorage"
    key: Any = "0"
    count: Any = 4
    place: Any = "cpu"
    more: tuple[Any, ...] = field(default=())


def encoded(value: Any) -> bytes:
    """The opcodes that put a value on the stack."""
    if isinstance(value, Global):
        module, _, name = value.name.rpartition(".")
        return b"c" + module.encode() + b"\n" + name.encode() + b"\n"
    if isinstance(value, Call):
        made = encoded(Global(value.name)) + encoded(value.arguments) + (b"\x81" if value.new else b"R")
        return made if value.state is NOTHING else made + encoded(value.state) + b"b"
    if isinstance(value, Saved):
        return encoded(("storage", Global(value.kind), value.key, value.place, value.count, *value.more)) + b"Q"
    if isinstance(value, bytes):
        return encoded(Call("_codecs.encode", (value.decode("latin1"), "latin1")))
    if isinstance(value, tuple):
        return b"(" + b"".join(map(encoded, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(encoded, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(encoded(key) + encoded(item) for key, item in value.items()) + b"u"
    if isinstance(value, str):
        text = value.encode()
        return b"X" + struct.pack("<I", len(text)) + text
    return pickle.dumps(value, 2)[2:-1]


def archive(
    opcodes: bytes, compression: int = zipfile.ZIP_STORED, order: bytes = b"little", **storages: bytes
) -> bytes:
    """A checkpoint's file of this pickle, and of storages by key, `_0` for "0"."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + opcodes + b".")
        file.writestr("archive/byteorder", order)
        for key, data in {"_0": bytes(16), **storages}.items():
            file.writestr(f"archive/data/{key.removeprefix('_')}", data)
        file.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def number_type(code: Any = "f8", state: Any = (3, "<", None, None, None, -1, -1, 0)) -> Call:
    return Call("numpy.dtype", (code, False, True), state)


def numpy_array(shape: Any = (2,), data: Any = bytes(16), number: Any = None) -> Call:
    start = (Global("numpy.ndarray"), (0,), b"b")
    return Call("numpy._core.multiarray._reconstruct", start, (1, shape, number or number_type(), False, data))


def tensor(storage: Any = None, offset: Any = 0, shape: Any = (2, 2), stride: Any = (2, 1), *more: Any) -> Call:
    rest = more or (False, Call("collections.OrderedDict", ()))
    return Call("torch._utils._rebuild_tensor_v2", (storage or Saved(), offset, shape, stride, *rest))
