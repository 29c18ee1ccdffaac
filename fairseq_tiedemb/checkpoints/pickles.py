"""Reads the pickles of checkpoints: dense tensors, numbers, text and settings, and nothing else.

torch's own reader with `weights_only` calls no code of the file, but believes its numbers: of the size of a tensor,
whose memory it then takes or reads beyond, of what a sparse tensor's indices are, of how deep a key is nested. And a
file may hold one thing for one program and another for the next. So no other program reads what is checked here.
"""

import codecs
import pickle
import pickletools
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any

import torch
from torch import Tensor

from . import limits
from .stand_ins import ALLOWED, FILLED, Settings, Words, guarded, refuse, require

NAMES = "Double Float Half BFloat16 Long Int Short Bool".split()
STORAGES = {
    **{f"torch.{name}Storage": getattr(torch, name.lower()) for name in NAMES},
    "torch.ByteStorage": torch.uint8,
    "torch.CharStorage": torch.int8,
    "torch.ComplexFloatStorage": torch.complex64,
    "torch.ComplexDoubleStorage": torch.complex128,
    "torch.storage.UntypedStorage": torch.uint8,
}
# Others (float8, bits, quantised ones) have no arithmetic on CPUs, so that whoever reads them fails later.
KINDS = {*STORAGES.values(), torch.uint16, torch.uint32, torch.uint64}
PLAIN = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True)
class Storage:
    """A storage of torch, or a part of it: the numbers that tensors share."""

    data: torch.UntypedStorage
    kind: torch.dtype
    start: int
    count: int


def tensor(*args: Any) -> Tensor:
    """Stands for torch's `_rebuild_tensor` and `_rebuild_tensor_v2`: a part of a storage.

    It is given the storage, offset, size and stride in numbers, requires_grad, hooks (none) and metadata (none).
    ValueError if it lies outside its storage, for which torch would take more memory.
    """
    require(4 <= len(args) <= 7 and type(args[0]) is Storage, "tensor", args)
    storage, offset, shape, stride, *rest = args
    are_numbers = type(offset) is int and offset >= 0 and are_sizes(shape) and are_sizes(stride)
    require(are_numbers and len(shape) == len(stride), "tensor", (offset, shape, stride))
    last, count = offset, 1
    for length, step in zip(shape, stride, strict=True):
        last, count = last + (length - 1) * step, count * length
    if count and last >= storage.count:
        raise ValueError(f"a tensor of shape {shape} needs more than the {storage.count:,} numbers saved")
    if count > max(storage.count, limits.REPEATED_NUMBERS):
        raise ValueError(f"a tensor of shape {shape} repeats the {storage.count:,} numbers saved")
    require(all(type(flag) is bool for flag in rest[:1]) and not any(rest[1:]), "tensor", rest)
    made = torch.empty(0, dtype=storage.kind).set_(storage.data, storage.start + offset, shape, stride)
    return made.requires_grad_(any(rest[:1]))


def tensor_of_type(*args: Any) -> Tensor:
    """Stands for torch's `_rebuild_tensor_v3`: the same for kinds of numbers without a class of storages."""
    is_whole = 7 <= len(args) <= 8 and type(args[0]) is Storage and not args[0].start
    require(is_whole and type(args[6]) is torch.dtype, "tensor", args)
    storage = Storage(args[0].data, args[6], 0, args[0].count * args[0].kind.itemsize // args[6].itemsize)
    return tensor(storage, *args[1:6], *args[7:])


def is_plain(value: Any) -> bool:
    """Whether a value may be a dictionary key, alone or in a tuple: hashing deeper keys overflows the stack."""
    return type(value) in PLAIN and (type(value) is not int or abs(value) < limits.KEY)


def are_sizes(value: Any) -> bool:
    """Whether a value can be the shape of a tensor: a tuple of whole numbers from 0."""
    whole = type(value) is tuple and len(value) <= limits.TENSOR_DIMENSIONS
    return whole and all(type(item) is int and 0 <= item < limits.DIMENSION for item in value)


def weight(value: Any, levels: int = 3) -> int:
    """Estimates the bytes of a copy of a value: the length of texts, and eight for each entry of a container."""
    if type(value) in (str, bytes):
        return len(value)
    if not levels or type(value) not in (tuple, list, dict):
        return 0
    items = value.values() if type(value) is dict else value
    held = (tuple, list, dict, str, bytes) if type(value) is tuple else (tuple, list, dict)
    return 8 * len(value) + sum(weight(item, levels - 1) for item in items if type(item) in held)


# By the name in the pickle; of what is called, the name in errors, and the arguments that it may be given.
CALLS: dict[str, Any] = {
    **ALLOWED,
    "collections.OrderedDict": guarded("OrderedDict", OrderedDict, lambda *args: not args),  # which is filled later
    "collections.Counter": guarded(
        "collections.Counter", Counter, lambda *args: len(args) <= 1 and all(type(counts) is dict for counts in args)
    ),
    "builtins.set": guarded(
        "set", set, lambda *args: len(args) <= 1 and all(type(one) is list and all(map(is_plain, one)) for one in args)
    ),
    "_codecs.encode": guarded(  # by which the pickles of torch hold bytes
        "_codecs.encode",
        codecs.encode,
        lambda *args: len(args) == 2 and type(args[0]) is str and args[1] in ("latin1", "latin-1"),
    ),
    "torch.Size": guarded("torch.Size", torch.Size, lambda *args: len(args) == 1 and are_sizes(args[0])),
    "torch.device": guarded(
        "torch.device",
        torch.device,
        lambda *args: 1 <= len(args) <= 2 and type(args[0]) is str and all(type(index) is int for index in args[1:]),
    ),
    "torch._utils._rebuild_tensor": tensor,
    "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_tensor_v3": tensor_of_type,
    "torch._utils._rebuild_parameter": guarded(
        "torch.nn.Parameter",
        lambda data, requires_grad, hooks: torch.nn.Parameter(data, requires_grad),
        lambda *args: len(args) == 3 and type(args[0]) is Tensor and type(args[1]) is bool and not args[2],
    ),
    **STORAGES,
    **{str(kind): kind for kind in KINDS},
}


@dataclass
class Unpickler:
    """Runs pickles as torch does, with checks."""

    # A storage from its key, the number of its numbers, and their kind, asked once for a key.
    load: Callable[[str, int, torch.dtype], torch.UntypedStorage] = lambda *given: refuse("a storage", given)
    legacy: bool = False  # of torch before 1.6, where a storage may be a part of another
    storages: dict[str, Storage] = field(default_factory=dict)
    _views: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def run(self, file: IO[bytes]) -> Any:
        """Returns the value of the next pickle of the file.

        pickle.UnpicklingError if it asks for anything else than fairseq's checkpoints consist of; ValueError,
        LookupError or TypeError if it is damaged, or no pickle.
        """
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._given, self._tuples, start = 0, 0, file.tell()
        for opcode, argument, place in pickletools.genops(file):
            step = STEPS.get(opcode.name)
            if step is None:
                raise pickle.UnpicklingError(f"Unsupported operand {ord(opcode.code)}")
            self._read = (place or 0) - start
            step(self, argument)
        return self._stack.pop()

    def _give(self, value: Any) -> Any:
        """A value that a call is about to be given, unless all calls together got more than the pickle is long."""
        self._given += weight(value)
        if self._given > limits.FEW_GIVEN_BYTES + limits.GIVEN_BYTES * self._read:
            raise ValueError(f"its calls are given {self._given:,} bytes, of a pickle of {self._read:,}")
        return value

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _mark(self, _: Any) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def _tuple(self, count: int) -> None:
        self._stack[len(self._stack) - count :] = [tuple(self._stack[-count:])]

    def _extend(self, items: list[Any]) -> None:
        require(type(self._stack[-1]) is list, "a list's entries", self._stack[-1])
        self._stack[-1].extend(items)

    def _set(self, items: list[Any]) -> None:
        entries = self._stack[-1]
        require(type(entries) in (dict, OrderedDict) and len(items) % 2 == 0, "a dictionary's entries", entries)
        for key, value in zip(items[::2], items[1::2], strict=True):
            require(self._is_plain_tuple(key) if type(key) is tuple else is_plain(key), "a dictionary's key", key)
            entries[key] = value

    def _is_plain_tuple(self, key: tuple[Any, ...]) -> bool:
        self._tuples += 1
        return self._tuples <= limits.TUPLES and all(map(is_plain, self._give(key)))

    def _global(self, names: str) -> None:
        name = names.replace(" ", ".", 1).replace("__builtin__.", "builtins.")  # as Python 2 called it, and pickle does
        if name not in CALLS:
            raise pickle.UnpicklingError(name)
        self._push(CALLS[name])

    def _reduce(self, _: Any) -> None:
        arguments, call = self._stack.pop(), self._stack.pop()
        require(type(arguments) is tuple and callable(call), "a call", (call, arguments))
        self._push(call(*self._give(arguments)))

    def _new(self, _: Any) -> None:
        arguments, call = self._stack.pop(), self._stack.pop()
        is_empty = type(arguments) is tuple and not arguments
        require(is_empty and (call is Settings or call is Words), "an object", (call, arguments))
        self._push(call())

    def _build(self, _: Any) -> None:
        state, filled = self._give(self._stack.pop()), self._stack[-1]
        if type(filled) is OrderedDict and type(state) is dict and state.keys() <= {"_metadata"}:
            filled.__dict__.update(state)
        elif isinstance(filled, FILLED):
            filled.__setstate__(state)
        else:
            refuse(f"a state of a {type(filled).__name__}", state)

    def _storage(self, _: Any) -> None:
        """The storage of a persistent id: "storage", class, key, device, count, and in old files a part of another."""
        given = self._stack.pop()
        require(type(given) is tuple and len(given) == (6 if self.legacy else 5), "a storage", given)
        what, kind, key, place, count, *view = given
        are_texts = type(what) is type(key) is type(place) is str and what == "storage" and place != "meta"
        require(are_texts and type(kind) is torch.dtype and key not in self._views, "a storage", given)
        require(type(count) is int and count >= 0, "a storage", given)
        if key not in self.storages:
            self.storages[key] = Storage(self.load(key, count, kind), kind, 0, count)
        storage = self.storages[key]
        require((storage.kind, storage.count) == (kind, count), "a storage", given)
        self._push(storage if not view or view[0] is None else self._view(key, view[0]))

    def _view(self, whole: str, view: Any) -> Storage:
        """A part of a storage: its own key, offset, count."""
        is_part = type(view) is tuple and len(view) == 3 and type(view[0]) is str and are_sizes(view[1:])
        require(is_part and view[0] not in self.storages, "a part of a storage", view)
        is_known = self._views.setdefault(view[0], (whole, *view)) == (whole, *view)
        require(is_known and view[1] + view[2] <= self.storages[whole].count, "a part of a storage", view)
        return Storage(self.storages[whole].data, self.storages[whole].kind, *view[1:])


# What torch's reader does for each opcode, and so what may occur.
STEPS: dict[str, Any] = {
    **dict.fromkeys("BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE".split(), Unpickler._push),
    "SHORT_BINSTRING": lambda self, text: self._push(text.encode("latin-1").decode()),  # of Python 2
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda self, place: self._memo.update({place: self._stack[-1]})),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda self, place: self._push(self._memo[place])),
    **dict.fromkeys(("PROTO", "STOP"), lambda self, _: None),
    "NONE": lambda self, _: self._push(None),
    "NEWTRUE": lambda self, _: self._push(True),
    "NEWFALSE": lambda self, _: self._push(False),
    "EMPTY_TUPLE": lambda self, _: self._push(()),
    "EMPTY_LIST": lambda self, _: self._push([]),
    "EMPTY_DICT": lambda self, _: self._push({}),
    "MARK": Unpickler._mark,
    "TUPLE": lambda self, _: self._push(tuple(self._since_mark())),
    "TUPLE1": lambda self, _: self._tuple(1),
    "TUPLE2": lambda self, _: self._tuple(2),
    "TUPLE3": lambda self, _: self._tuple(3),
    "APPEND": lambda self, _: self._extend([self._stack.pop()]),
    "APPENDS": lambda self, _: self._extend(self._since_mark()),
    "SETITEM": lambda self, _: self._set([self._stack.pop(-2), self._stack.pop()]),
    "SETITEMS": lambda self, _: self._set(self._since_mark()),
    "GLOBAL": Unpickler._global,
    "REDUCE": Unpickler._reduce,
    "NEWOBJ": Unpickler._new,
    "BUILD": Unpickler._build,
    "BINPERSID": Unpickler._storage,
}
