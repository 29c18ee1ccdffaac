"""Reads the files of checkpoints, for fairseq's commands and for ours. Nothing global changes."""

import io
import pickle
import re
import sys
import zipfile
from argparse import Namespace
from dataclasses import dataclass, field
from typing import IO, Any

import torch
from torch import Tensor

from . import limits
from .pickles import Storage, Unpickler
from .settings import refuse_file, require_plain_settings
from .stand_ins import FILLED, refuse, shown

CHUNK = 2**22  # bytes that are read at once, to be checked while they are in the processor's cache
HOLDERS = (dict, list, tuple, Namespace, *FILLED)
# Of torch's files that are no archives: what they start with, and the version that follows.
LEGACY = (0x1950A86A20F9469CFC6C, 1001)


def read_file(file: IO[bytes], path: str) -> dict[str, Any]:
    """What a checkpoint, a file that is open at its start, holds: tensors on the CPU, numbers, text and settings.

    It is read here alone, and by no call of torch's: what is checked is what is used. An archive, torch's format since
    1.6, has checksums, which are checked too; files that were saved without any, after
    `torch.serialization.set_crc32_options(False)`, are refused. In older files damage to a weight is not found.

    ValueError, naming `path`, if it is no checkpoint, is damaged or cut short, asks for more memory than its size
    allows, or holds anything else.
    """
    try:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        is_archive = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        state = Plain(size).of(read_archive(file, size) if is_archive else read_legacy(file, size))
    except Exception as error:  # whatever a damaged file leads to
        raise ValueError(refusal(path, error)) from error
    require_state(state, path)
    require_plain_settings(state, path)
    return state


class Bounded:
    """A file that refuses to read beyond `most` bytes: Python would allocate memory before it sees the file's end."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self.file, self.most = file, most
        self.tell, self.readline = file.tell, file.readline

    def read(self, count: int) -> bytes:
        """Reads `count` bytes; ValueError beyond the limit."""
        if self.tell() + count > self.most:
            raise ValueError(f"more than {self.most:,} bytes")
        return self.file.read(count)


def read_archive(file: IO[bytes], size: int) -> Any:
    """What the pickle of an archive of `size` bytes holds.

    ValueError if it can be read in two ways, or would be larger when unpacked; zipfile.BadZipFile for a bad checksum.
    """
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        # torch looks names up without regard to case, and the directory where the file says, before which data may lie.
        lengths = len(archive.infolist()), len({name.lower() for name in members})
        if archive.comment or len(set(lengths)) > 1 or min(each.header_offset for each in members.values()):
            raise ValueError("an archive that can be read in two ways")
        unpacked = sum(member.file_size for member in members.values())
        if unpacked > size:
            raise ValueError(f"an archive of {size:,} bytes that would fill {unpacked:,}")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise ValueError("an archive whose parts are compressed")
        folder = next(iter(members)).partition("/")[0]
        order = f"{folder}/byteorder"
        swapped = order in members and archive.read(order).decode() != sys.byteorder

        def load(key: str, count: int, kind: torch.dtype) -> torch.UntypedStorage:
            member = members[f"{folder}/data/{key}"]
            if count * kind.itemsize > member.file_size:
                raise ValueError(f"storage {key} has fewer than the {count:,} numbers that it should have")
            data = torch.UntypedStorage(member.file_size)
            with archive.open(member) as part:
                fill(data, part)
            if swapped:
                data.byteswap(kind)
            return data

        return Unpickler(load).run(io.BytesIO(archive.read(f"{folder}/data.pkl")))


def read_legacy(file: IO[bytes], size: int) -> Any:
    """What the pickles of a file of torch before 1.6 hold; ValueError if it is shorter than they say, or has none."""
    pickles: Any = Bounded(file, size)
    try:
        start = (Unpickler().run(pickles), Unpickler().run(pickles))
    except Exception:
        start = (0, 0)
    if start != LEGACY:
        raise ValueError("neither an archive nor an older file of torch")
    Unpickler().run(pickles)  # the machine that saved it
    needed = file.tell()

    def load(_: str, count: int, kind: torch.dtype) -> torch.UntypedStorage:
        nonlocal needed
        needed += 8 + count * kind.itemsize  # the length and the numbers, which follow the pickles
        if needed > size:
            raise ValueError(f"it needs {needed:,} bytes and has {size:,}")
        return torch.UntypedStorage(count * kind.itemsize)

    unpickler = Unpickler(load, legacy=True)
    state, keys = unpickler.run(pickles), Unpickler().run(pickles)
    if type(keys) is not list or sorted(keys) != sorted(unpickler.storages):
        raise ValueError("other tensors follow than those that it names")
    for key in keys:
        storage = unpickler.storages[key]
        if int.from_bytes(file.read(8), "little") != storage.count:
            raise ValueError(f"storage {key} has another number of numbers than it should have")
        fill(storage.data, file)
    return state


def fill(storage: torch.UntypedStorage, file: IO[bytes]) -> None:
    """Fills a storage with bytes of the file, in pieces: the file of an archive copies what it reads."""
    room = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data
    while room:
        read = file.readinto(room[:CHUNK])  # type: ignore[attr-defined]
        if not read:
            raise EOFError("it ends too early")
        room = room[read:]


@dataclass
class Plain:
    """Replaces stand-ins in what was unpickled by the classes that they stand for; dicts and lists change in place."""

    size: int  # bytes of the file
    tensors: int = 0
    done: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def of(self, value: Any, depth: int = 0) -> Any:
        """Returns a value, nested `depth` deep, without stand-ins; ValueError if it is too deep or holds itself."""
        if isinstance(value, Tensor):
            self.count(value)
        elif isinstance(value, Storage) or callable(value):
            refuse("an entry", value)
        if not isinstance(value, HOLDERS):
            return value
        # By id; what was met is kept, so that no id is used again.
        if id(value) not in self.done:
            if depth > limits.DEPTH:
                raise ValueError(f"entries nested more than {limits.DEPTH} deep")
            self.done[id(value)] = value, self
            self.done[id(value)] = value, self.new(value, depth + 1)
        plain = self.done[id(value)][1]
        if plain is self:
            raise ValueError("an entry that holds itself")
        return plain

    def new(self, value: Any, depth: int) -> Any:
        """Returns a container, or a stand-in, without stand-ins; `of` calls it once for each object."""
        if isinstance(value, FILLED):
            return value.plain()
        if isinstance(value, Namespace):
            self.of(vars(value), depth)
        elif isinstance(value, dict):
            for key, item in value.items():  # not update(), which in a Counter adds
                value[key] = self.of(item, depth)
        elif isinstance(value, list):
            value[:] = [self.of(item, depth) for item in value]
        elif type(value) is tuple:
            items = tuple(self.of(item, depth) for item in value)
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        return value

    def count(self, tensor: Tensor) -> None:
        """Raises ValueError if the tensors met so far take more memory than the size of the file allows."""
        self.tensors += tensor.numel() * tensor.element_size()
        if self.tensors > limits.FEW_TENSOR_BYTES + limits.TENSOR_BYTES * self.size:
            raise ValueError(f"a file of {self.size:,} bytes whose tensors would fill {self.tensors:,} and more")


def require_state(state: Any, path: str) -> None:
    """Raises ValueError unless a checkpoint is a dictionary, and the entries of its model have names."""
    if not isinstance(state, dict):
        refuse_file(path, "a checkpoint of fairseq-train", f"{type(state).__name__} instead of a dictionary", "another")
    for name in ("task_state", "extra_state"):
        if not isinstance(entries := state.get(name), dict | None):
            refuse_file(path, f"{name} that is a dictionary", shown(entries))
    for part, entries in (("", state), (" of the model", state.get("model"))):
        for key in entries if isinstance(entries, dict) else ():
            if type(key) is not str:
                refuse_file(path, f"entries{part} with names", repr(key))


def refusal(path: str, error: Exception) -> str:
    """Why `path` is not loaded; the text of an UnpicklingError is what it asks for that no checkpoint may have."""
    got = str(error) or type(error).__name__
    if not isinstance(error, pickle.UnpicklingError):
        missing = {"'ema'": "an average, of --store-ema", "'best_loss'": "the settings of fairseq-train"}.get(got)
        if missing:  # of --ema-seed-model, and of another program's file
            return f"{path}: needs a checkpoint with {missing}; got one without. Use another."
        return f"{path}: needs a whole checkpoint; got one that cannot be read ({got[:200].strip()}). Use another one."
    if re.fullmatch(r"torch\.(_utils\._rebuild_\w+|\w+Storage|q?u?int\d\w*|bits\w+|(float|complex)\d\w+)", got):
        use = "a checkpoint that was saved after to_dense(), dequantize() or float()"
        return f"{path}: needs dense tensors of plain numbers, float32 say; got {got}. Use {use}."
    needs, got = "tensors, numbers, text and settings only", f"{got}, which could run code. Nothing of it was run"
    return f"{path}: needs {needs}; got {got}. Use a checkpoint from a source you trust, saved without that object."
