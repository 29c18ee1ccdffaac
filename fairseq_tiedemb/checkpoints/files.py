"""Reads the files of checkpoints, for fairseq's commands and for ours."""

import io
import pickle
import re
import zipfile
from argparse import Namespace
from typing import IO, Any

import torch
from torch import Tensor

from .settings import refuse_file, require_plain_settings
from .stand_ins import FILLED, STAND_INS, NotInCheckpoints, shown

CHECKPOINT_STARTS = (b"PK\x03\x04", b"\x80")  # archives of torch; its files before 1.6, which are pickles
HOLDERS = (dict, list, tuple, Namespace, *FILLED)


def read_file(file: IO[bytes], path: str) -> dict[str, Any]:
    """What a checkpoint, a file that is open at its start, holds: tensors on the CPU, numbers, text and settings.

    `torch.load` reads it with `weights_only`, which runs no code of the file. An archive, torch's format since 1.6, has
    checksums, which torch leaves alone and this compares; files that were saved without any, after
    `torch.serialization.set_crc32_options(False)`, are refused. In older files damage to a weight is not found.

    ValueError, naming `path`, if it is no checkpoint, is damaged or cut short, or holds anything else.
    """
    try:
        require_whole(file)
        state = plain(load(file), {})
    except Exception as error:  # whatever a damaged file leads to
        raise ValueError(refusal(path, error)) from error
    require_state(state, path)
    require_plain_settings(state, path)
    return state


def require_whole(file: IO[bytes]) -> None:
    """Raises BadZipFile for an archive with a wrong checksum, ValueError for one that grows and for another file."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(4)
    if not start.startswith(CHECKPOINT_STARTS):
        raise ValueError(f"it begins with {start!r}, as no file of torch.save does")
    if start == CHECKPOINT_STARTS[0]:
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > size:
                raise ValueError(f"an archive of {size:,} bytes that would fill {unpacked:,}")
            damaged = archive.testzip()
            if damaged is not None:
                raise zipfile.BadZipFile(f"Bad CRC-32 for file {damaged!r}")
    file.seek(0)


def load(file: IO[bytes]) -> Any:
    """Reads a file by torch, which may call the stand-ins, and no class that somebody else has allowed."""
    of_others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()  # of two classes under one name torch takes either
    try:
        torch.serialization.add_safe_globals(STAND_INS)
        return torch.load(file, map_location="cpu", weights_only=True)
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(of_others)


def plain(value: Any, done: dict[int, tuple[Any, Any]]) -> Any:
    """Returns a value without stand-ins; dicts and lists change in place. `done` has, by id, what each has become."""
    if not isinstance(value, HOLDERS):
        return value
    if id(value) not in done:
        done[id(value)] = value, value.plain() if isinstance(value, FILLED) else value
        entries = vars(value) if isinstance(value, Namespace) else value
        if isinstance(entries, dict):
            for key, item in entries.items():  # not update(), which in a Counter adds
                entries[key] = plain(item, done)
        elif isinstance(entries, list):
            entries[:] = [plain(item, done) for item in entries]
        elif type(entries) is tuple:
            done[id(value)] = value, tuple(plain(item, done) for item in entries)
    return done[id(value)][1]


def require_state(state: Any, path: str) -> None:
    """Raises ValueError unless a checkpoint is a dictionary with a model: entries with names, and no odd tensors."""
    if not isinstance(state, dict):
        refuse_file(path, "a checkpoint of fairseq-train", f"{type(state).__name__} instead of a dictionary", "another")
    if not isinstance(state.get("model"), dict):
        refuse_file(path, "a checkpoint of fairseq-train", "one that holds no model", "another")
    for name in ("task_state", "extra_state"):
        if not isinstance(entries := state.get(name), dict | None):
            refuse_file(path, f"{name} that is a dictionary", shown(entries))
    for part, entries in (("", state), (" of the model", state["model"])):
        for key, entry in entries.items():
            if type(key) is not str:
                refuse_file(path, f"entries{part} with names", repr(key))
            if isinstance(entry, Tensor) and not is_dense(entry):
                got = f"{key} of {entry.dtype} ({entry.layout}, {entry.device})"
                use = "a checkpoint that was saved after to_dense(), dequantize() or float()"
                refuse_file(path, "dense tensors of plain numbers, float32 say", got, use)


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor is a whole array of numbers that CPUs calculate with."""
    tiny = tensor.is_floating_point() and tensor.itemsize < 2  # float8
    is_array = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta
    return is_array and not tensor.is_quantized and not tiny


def refusal(path: str, error: Exception) -> str:
    """Why `path` is not loaded, from the error of reading it."""
    got = str(error) or type(error).__name__
    asked = re.search(r"GLOBAL (\S+)", got) if isinstance(error, pickle.UnpicklingError) else None
    if asked or isinstance(error, NotInCheckpoints):
        needs = "tensors, numbers, text and settings only"
        got = f"{asked[1] if asked else got}, which could run code. Nothing of it was run"
        return f"{path}: needs {needs}; got {got}. Use a checkpoint from a source you trust, saved without that object."
    if isinstance(error, KeyError) and got.strip("'").isidentifier():  # no number, of a damaged pickle
        # Of --ema-seed-model, and of another program's file.
        names = {"'ema'": "an average, of --store-ema", "'best_loss'": "the settings of fairseq-train"}
        return f"{path}: needs a checkpoint with {names.get(got, got)}; got one without. Use another."
    # torch has the reason between advice to run the file's code, and where to read more.
    reason = " ".join(re.split(r"WeightsUnpickler error:|\n\nCheck the doc", got)[-2:][0].split())
    if reason.startswith("Unsupported operand"):
        reason += ": of another pickle_protocol than 2"
    return f"{path}: needs a whole checkpoint; got one that cannot be read ({reason[:200]}). Use another one."
