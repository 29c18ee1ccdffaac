"""What the pickle of a checkpoint asks for, followed step by step before torch does any of it.

torch's own reader with `weights_only` calls no code of the file, but believes its numbers: of the size of a tensor,
whose memory it then takes or reads beyond, of what a sparse tensor's indices are, of how deep a key is nested. So each
pickle is run here first, with numbers in the place of tensors, and only what fairseq's checkpoints consist of is let
through.
"""

import codecs
import pickle
import pickletools
from dataclasses import dataclass, field
from typing import IO, Any

import torch

from .stand_ins import ALLOWED, FILLED, Settings, Words, refuse

SIZES = {  # bytes of one number of each kind of storage
    **dict.fromkeys(("torch.DoubleStorage", "torch.LongStorage", "torch.ComplexFloatStorage"), 8),
    **dict.fromkeys(("torch.FloatStorage", "torch.IntStorage"), 4),
    **dict.fromkeys(("torch.HalfStorage", "torch.BFloat16Storage", "torch.ShortStorage"), 2),
    **dict.fromkeys(("torch.ByteStorage", "torch.CharStorage", "torch.BoolStorage"), 1),
    "torch.storage.UntypedStorage": 1,
    "torch.ComplexDoubleStorage": 16,
}
MOST_REPEATED = 2**24  # numbers of a tensor that says its storage's numbers several times, as `expand` does
MOST_DIMENSIONS = 64
PLAIN = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True)
class StorageType:
    """Stands for one of torch's classes of storages."""

    itemsize: int


@dataclass(frozen=True)
class Storage:
    """Stands for the numbers of a tensor: how many, of how many bytes."""

    count: int
    itemsize: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.count * self.itemsize


class StoredTensor:
    """Stands for a dense tensor within its storage."""

    __slots__ = ()


class OrderedEntries(dict[Any, Any]):
    """Stands for `collections.OrderedDict`, a state dict; its one attribute is torch's `_metadata`."""

    def __setstate__(self, state: Any) -> None:
        if type(state) is not dict or state.keys() - {"_metadata"}:
            refuse("collections.OrderedDict", state)


def ordered_entries(*args: Any) -> OrderedEntries:
    """Stands for a call of `collections.OrderedDict`, which starts empty."""
    if args:
        refuse("collections.OrderedDict", args)
    return OrderedEntries()


def counter(*args: Any) -> dict[Any, Any]:
    """Stands for `collections.Counter`."""
    if len(args) > 1 or any(type(counts) is not dict for counts in args):
        refuse("collections.Counter", args)
    return {}


def plain_set(*args: Any) -> set[Any]:
    """Stands for `set`, of plain values."""
    if len(args) > 1 or any(type(items) is not list or not all(map(is_plain, items)) for items in args):
        refuse("set", args)
    return set()


def encoded(*args: Any) -> bytes:
    """Stands for `_codecs.encode`, by which the pickles of torch hold bytes."""
    if len(args) != 2 or type(args[0]) is not str or args[1] not in ("latin1", "latin-1"):
        refuse("_codecs.encode", args)
    return codecs.encode(args[0], "latin1")


def size(*args: Any) -> tuple[int, ...]:
    """Stands for `torch.Size`."""
    if len(args) != 1 or not are_sizes(args[0]):
        refuse("torch.Size", args)
    return args[0]


def device(*args: Any) -> str:
    """Stands for `torch.device`."""
    if not 1 <= len(args) <= 2 or type(args[0]) is not str or any(type(index) is not int for index in args[1:]):
        refuse("torch.device", args)
    return args[0]


def tensor(*args: Any) -> StoredTensor:
    """Stands for torch's `_rebuild_tensor` and `_rebuild_tensor_v2`: a part of a storage.

    Args:
        args: storage, offset, size and stride in numbers; requires_grad, hooks (none) and metadata (none).

    Raises:
        pickle.UnpicklingError: if it lies outside its storage, for which torch would take more memory.
    """
    if not 4 <= len(args) <= 7 or type(args[0]) is not Storage:
        refuse("tensor", args)
    return check_tensor(args[0], *args[1:4], rest=args[4:])


def tensor_of_type(*args: Any) -> StoredTensor:
    """Stands for torch's `_rebuild_tensor_v3`: the same for kinds of numbers without a class of storages."""
    if not 7 <= len(args) <= 8 or type(args[0]) is not Storage or type(args[6]) is not torch.dtype:
        refuse("tensor", args)
    storage = Storage(args[0].count * args[0].itemsize // args[6].itemsize, args[6].itemsize)
    return check_tensor(storage, *args[1:4], rest=(*args[4:6], *args[7:]))


def check_tensor(storage: Storage, offset: Any, shape: Any, stride: Any, *, rest: tuple[Any, ...]) -> StoredTensor:
    """The tensor of these numbers, if it lies within its storage and has neither hooks nor metadata."""
    if type(offset) is not int or offset < 0 or not are_sizes(shape) or not are_sizes(stride):
        refuse("tensor", (offset, shape, stride))
    if len(shape) != len(stride) or len(shape) > MOST_DIMENSIONS:
        refuse("tensor", (offset, shape, stride))
    last, count = offset, 1
    for length, step in zip(shape, stride, strict=True):
        last, count = last + (length - 1) * step, count * length
    if count and last >= storage.count:
        raise pickle.UnpicklingError(f"a tensor of shape {shape} needs more than the {storage.count:,} numbers saved")
    if count > max(storage.count, MOST_REPEATED):
        raise pickle.UnpicklingError(f"a tensor of shape {shape} repeats the {storage.count:,} numbers saved")
    if any(type(flag) is not bool for flag in rest[:1]) or any(rest[1:]):
        refuse("tensor", rest)
    return StoredTensor()


def parameter(*args: Any) -> StoredTensor:
    """Stands for torch's `_rebuild_parameter`: a tensor, requires_grad, and no hooks."""
    if len(args) != 3 or type(args[0]) is not StoredTensor or type(args[1]) is not bool or args[2]:
        refuse("torch.nn.Parameter", args)
    return args[0]


CALLS: dict[str, Any] = {
    **ALLOWED,
    "collections.OrderedDict": ordered_entries,
    "collections.Counter": counter,
    "builtins.set": plain_set,
    "_codecs.encode": encoded,
    "torch.Size": size,
    "torch.device": device,
    "torch._utils._rebuild_tensor": tensor,
    "torch._utils._rebuild_tensor_v2": tensor,
    "torch._utils._rebuild_tensor_v3": tensor_of_type,
    "torch._utils._rebuild_parameter": parameter,
    **{name: StorageType(itemsize) for name, itemsize in SIZES.items()},
    **{str(kind): kind for kind in vars(torch).values() if type(kind) is torch.dtype},
}


def is_plain(value: Any) -> bool:
    """Whether it may be a key: hashing one that is nested deeply overflows the stack."""
    return type(value) in PLAIN or (type(value) is tuple and all(type(item) in PLAIN for item in value))


def are_sizes(value: Any) -> bool:
    """Whether it is a tuple of whole numbers from 0."""
    return type(value) is tuple and all(type(item) is int and item >= 0 for item in value)


@dataclass
class Examination:
    """Runs pickles with what stands for the real thing.

    Args:
        sizes: bytes of each storage of a zip archive, by its key. None for a file without: then `storages` says what
            it asks for.
    """

    sizes: dict[str, int] | None = None
    storages: dict[str, Storage] = field(default_factory=dict)
    _views: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def run(self, file: IO[bytes]) -> Any:
        """What the next pickle of the file stands for.

        Raises:
            pickle.UnpicklingError: if it asks for anything else than fairseq's checkpoints consist of.
            ValueError, LookupError, TypeError: if it is damaged, or no pickle.
        """
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        for opcode, argument, _ in pickletools.genops(file):
            step = STEPS.get(opcode.name)
            if step is None:
                raise pickle.UnpicklingError(f"WeightsUnpickler error: Unsupported operand {ord(opcode.code)}")
            step(self, argument)
        return self._stack.pop()

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
        if type(self._stack[-1]) is not list:
            refuse("a list's entries", self._stack[-1])
        self._stack[-1].extend(items)

    def _set(self, items: list[Any]) -> None:
        entries = self._stack[-1]
        if type(entries) not in (dict, OrderedEntries) or len(items) % 2:
            refuse("a dictionary's entries", entries)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not is_plain(key):
                refuse("a dictionary's key", type(key))
            entries[key] = value

    def _remember(self, place: int) -> None:
        self._memo[place] = self._stack[-1]

    def _global(self, names: str) -> None:
        name = names.replace(" ", ".", 1).replace("__builtin__.", "builtins.")  # as Python 2 called it, and pickle does
        if name not in CALLS:
            raise pickle.UnpicklingError(f"GLOBAL {name}")
        self._push(CALLS[name])

    def _reduce(self, _: Any) -> None:
        arguments, call = self._stack.pop(), self._stack.pop()
        if type(arguments) is not tuple or not callable(call):
            refuse("a call", (call, arguments))
        self._push(call(*arguments))

    def _new(self, _: Any) -> None:
        arguments, call = self._stack.pop(), self._stack.pop()
        if arguments != () or call not in (Settings, Words):
            refuse("an object", (call, arguments))
        self._push(call.__new__(call))

    def _build(self, _: Any) -> None:
        state = self._stack.pop()
        if not isinstance(self._stack[-1], (*FILLED, OrderedEntries)):
            refuse("a state", self._stack[-1])
        self._stack[-1].__setstate__(state)

    def _storage(self, _: Any) -> None:
        """The storage of a persistent id: "storage", class, key, device, count, and in old files a part of another."""
        given = self._stack.pop()
        if type(given) is not tuple or len(given) != (6 if self.sizes is None else 5) or given[0] != "storage":
            refuse("a storage", given)
        _, kind, key, place, count, *view = given
        if type(kind) is not StorageType or type(key) is not str or type(place) is not str or place == "meta":
            refuse("a storage", given)
        if type(count) is not int or count < 0 or key in self._views:
            refuse("a storage", given)
        storage = Storage(count, kind.itemsize)
        if self.storages.setdefault(key, storage) != storage:
            refuse("a storage", given)
        if self.sizes is not None and storage.bytes > self.sizes[key]:
            raise pickle.UnpicklingError(f"storage {key} has fewer than the {count:,} numbers that it should have")
        self._push(storage if not view or view[0] is None else self._view(key, view[0]))

    def _view(self, whole: str, view: Any) -> Storage:
        """A part of a storage: its own key, offset, count."""
        if type(view) is not tuple or len(view) != 3 or type(view[0]) is not str or not are_sizes(view[1:]):
            refuse("a part of a storage", view)
        if view[0] in self.storages or self._views.setdefault(view[0], (whole, *view)) != (whole, *view):
            refuse("a part of a storage", view)
        if view[1] + view[2] > self.storages[whole].count:
            refuse("a part of a storage", view)
        return Storage(view[2], self.storages[whole].itemsize)


# What torch's reader does for each opcode, and so what may occur.
STEPS: dict[str, Any] = {
    **dict.fromkeys("BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING".split(), Examination._push),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), Examination._remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda self, place: self._push(self._memo[place])),
    **dict.fromkeys(("PROTO", "STOP"), lambda self, _: None),
    "NONE": lambda self, _: self._push(None),
    "NEWTRUE": lambda self, _: self._push(True),
    "NEWFALSE": lambda self, _: self._push(False),
    "EMPTY_TUPLE": lambda self, _: self._push(()),
    "EMPTY_LIST": lambda self, _: self._push([]),
    "EMPTY_DICT": lambda self, _: self._push({}),
    "MARK": Examination._mark,
    "TUPLE": lambda self, _: self._push(tuple(self._since_mark())),
    "TUPLE1": lambda self, _: self._tuple(1),
    "TUPLE2": lambda self, _: self._tuple(2),
    "TUPLE3": lambda self, _: self._tuple(3),
    "APPEND": lambda self, _: self._extend([self._stack.pop()]),
    "APPENDS": lambda self, _: self._extend(self._since_mark()),
    "SETITEM": lambda self, _: self._set([self._stack.pop(-2), self._stack.pop()]),
    "SETITEMS": lambda self, _: self._set(self._since_mark()),
    "GLOBAL": Examination._global,
    "REDUCE": Examination._reduce,
    "NEWOBJ": Examination._new,
    "BUILD": Examination._build,
    "BINPERSID": Examination._storage,
}
