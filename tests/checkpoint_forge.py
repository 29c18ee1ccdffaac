"""Checkpoints whose pickles are written opcode by opcode, so that they can say what no saving program would."""

import io
import pickle
import random
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

from fairseq.data import Dictionary

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


def archive(opcodes: bytes, compression: int = zipfile.ZIP_STORED, **storages: bytes) -> bytes:
    """A checkpoint's file of this pickle, and of storages by key, `_0` for "0"."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + opcodes + b".")
        file.writestr("archive/byteorder", b"little")
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


def dictionary() -> Call:
    state = vars(Dictionary())
    return Call("fairseq.data.dictionary.Dictionary", (), {**state, "symbols": ["a", "b"], "count": [1, 2]}, new=True)


def hostile() -> list[Any]:
    """What numpy itself would follow out of the file."""
    types = [number_type(code, state) for code in ("f8", "b1", "O8", "V8") for state in TYPE_STATES]
    arrays = [numpy_array(data=b"\x41" * 16, number=number) for number in types]
    return [*arrays, *(Call("numpy._core.multiarray.scalar", (number, b"\x41" * 8)) for number in types)]


def honest() -> list[Any]:
    """What a checkpoint may hold, to be forged."""
    untyped = Saved(kind="torch.storage.UntypedStorage", count=16)
    return [
        number_type(),
        numpy_array(),
        Call("numpy.core.multiarray.scalar", (number_type("i4"), bytes(4))),
        Call("numpy._core.multiarray.scalar", (number_type("b1", (3, "|", None, None, None, -1, -1, 0)), b"\2")),
        Call("argparse.Namespace", (), {"dropout": 0.1, "arch": "lstm"}, new=True),
        dictionary(),
        tensor(),
        Call("torch._utils._rebuild_parameter", (tensor(), True, Call("collections.OrderedDict", ()))),
        Call("torch._utils._rebuild_tensor", (Saved(), 0, (4,), (1,))),
        Call(
            "torch._utils._rebuild_tensor_v3",
            (untyped, 0, (4,), (1,), False, Call("collections.OrderedDict", ()), Global("torch.float32")),
        ),
        Call("collections.OrderedDict", (), {"_metadata": Call("collections.OrderedDict", ())}),
        Call("collections.Counter", ({"a": 1},)),
        Call("torch.Size", ((2, 3),)),
        Call("torch.device", ("cpu",)),
        Call("__builtin__.set", (["a", 1],)),
    ]


TENSORS = "_rebuild_sparse_tensor _rebuild_qtensor _rebuild_wrapper_subclass _rebuild_device_tensor_from_numpy".split()
NAMES = [each.name for each in honest()] + [f"torch._utils.{name}" for name in TENSORS]
NAMES += "numpy.ndarray numpy.dtypes.Float64DType torch._tensor._rebuild_from_type_v2 torch.Tensor".split()
NAMES += "torch.FloatTensor torch.storage.UntypedStorage torch.nn.parameter.Parameter torch.float32".split()
VALUES: list[Any] = [None, True, False, -1, 0, 1, 2, 7, 63, 2**31, 2**62, 2**63 - 1, 2**70, 1.5, float("nan")]
VALUES += ["", *"O O8 V8 U4 M8[s] f8 i4 <f8 | > b __class__ meta cuda:0 0 9".split()]
VALUES += [b"", b"b", bytes(4), bytes(8), b"\xff" * 16, b"\2", (), (0,), (2,), (2**62, 4), (-1,), [], {}, (None,) * 8]
VALUES += [{"shape": (2**40,)}, {"__class__": 1}, {1: 2}, (None, {"numel": 2**40}), ({}, {"a": 1})]
# States of numpy.dtype: objects, fields, parts that are arrays, other sizes.
TYPE_STATES: list[Any] = [
    (3, "|", None, None, None, 8, 8, 63),
    (3, "|", None, None, None, 8, 8, 61),
    (3, "|", (Call("numpy.dtype", ("O8", False, True)), (1,)), None, None, 8, 8, 0),
    (3, "|", None, ("a",), {"a": (Call("numpy.dtype", ("O8", False, True)), 0)}, 8, 8, 0),
    (3, "|", None, ("a",), {"a": (number_type(), 0)}, 8, 8, 63),
    (3, "<", (number_type(), (4,)), None, None, 32, 8, 0),
    (3, "<", None, None, None, 2**30, 1, 0),
    (4, "<", None, None, None, -1, -1, 0, {}),
]


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Any value, or a call, with arguments of its kind or of any."""
    choice = rng.random()
    if choice < 0.6 or depth > 2:
        return rng.choice(VALUES)
    if choice < 0.7:
        return Global(rng.choice(NAMES))
    if choice < 0.8:
        return rng.choice(honest())
    arguments = tuple(any_value(rng, depth + 1) for _ in range(rng.randint(0, 7)))
    state = any_value(rng, depth + 1) if rng.random() < 0.5 else NOTHING
    return Call(rng.choice(NAMES), arguments, state, new=rng.random() < 0.3)


def forged(rng: random.Random, value: Any, chance: float) -> Any:
    """The same with some of its parts replaced."""
    if rng.random() < chance:
        return any_value(rng)
    if isinstance(value, Call):
        state = value.state if value.state is NOTHING else forged(rng, value.state, chance)
        if rng.random() < chance / 2:
            state = any_value(rng)
        arguments = forged(rng, value.arguments, chance)
        return Call(rng.choice(NAMES) if rng.random() < chance / 4 else value.name, arguments, state, value.new)
    if isinstance(value, Saved):
        parts = (forged(rng, part, chance) for part in (value.key, value.count, value.place))
        return Saved(value.kind, *parts)
    if isinstance(value, tuple | list):
        return type(value)(forged(rng, item, chance) for item in value)
    if isinstance(value, dict):
        return {key: forged(rng, item, chance) for key, item in value.items()}
    return value


def forged_file(rng: random.Random) -> bytes:
    """A file with one forged entry."""
    while True:
        value = any_value(rng) if rng.random() < 0.2 else forged(rng, rng.choice(honest() + hostile()[::7]), 0.08)
        try:
            return archive(encoded({"entry": value}))
        except (TypeError, struct.error):  # an unhashable key: Python cannot even write it
            continue


def known_files() -> list[bytes]:
    """What has crashed a reader once: a key nested so deep that its hash does, and numpy's objects."""
    deep = b"(t" + b"\x85" * 1_000_000
    return [*map(archive, [b"}(" + deep + b"Nu", *(encoded({"entry": each}) for each in hostile())])]
