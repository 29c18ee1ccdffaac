"""The one way in which a checkpoint's file is read, by fairseq's commands and by ours."""

import io
import re
import zipfile
from argparse import Namespace
from typing import IO, Any

import torch

from .pickles import Examination
from .settings import require_plain_settings
from .stand_ins import ALLOWED, FILLED, Words

DEEPEST = 100
SAFE = [(stand_in, name) for name, stand_in in ALLOWED.items()]  # as torch wants them
# Of torch's files that are no archives: what they start with, and the version that follows.
LEGACY = (0x1950A86A20F9469CFC6C, 1001)


def allow_stand_ins() -> None:
    """Tell torch what stands for the classes that a fairseq checkpoint may hold, in the place of the real ones.

    Not for dictionaries, which have a word for every number: without `read_file`, a pickle that calls something with
    one for its arguments would have no end.
    """
    torch.serialization.add_safe_globals([(stand_in, name) for stand_in, name in SAFE if stand_in is not Words])


def read_file(file: IO[bytes], path: str) -> dict[str, Any]:
    """What a checkpoint holds, as torch saved it, on the CPU: tensors, numbers, text and settings.

    Its pickle is examined first (`pickles`), then torch reads it with `weights_only`, and settings are checked
    (`settings`). Of an archive, torch's format since 1.6, the checksums are checked too, which torch does not: that
    reads the file a second time, 0.25 s for 500 MB that the system holds in memory, where torch takes 0.3 s. Older
    files have no checksums, so a damaged weight in them is not found; files that were saved without any, after
    `torch.serialization.set_crc32_options(False)`, are refused.

    Args:
        file: open at its start.
        path: its name, for errors.

    Raises:
        ValueError: if it is no checkpoint, is damaged or cut short, asks for more memory than its size, or holds
            anything else.
    """
    try:
        if file.read(4) == b"PK\x03\x04":
            examine_archive(file)
        else:
            examine_legacy(file)
        file.seek(0)
        with torch.serialization.safe_globals([each for each in SAFE if each[0] is Words]):
            state = to_plain(torch.load(file, map_location="cpu", weights_only=True))
    except Exception as error:  # whatever a damaged file leads to
        raise ValueError(refusal(path, str(error) or type(error).__name__)) from error
    require_state(state, path)
    require_plain_settings(state, path)
    return state


def file_size(file: IO[bytes]) -> int:
    """Bytes; the file is at its start then."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    return size


def examine_archive(file: IO[bytes]) -> None:
    """Raise unless an archive is whole, no larger than its file when unpacked, and its pickle fits what it holds."""
    size = file_size(file)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        # torch looks names up without regard to case, and takes the first folder for the archive's own.
        if archive.comment or len({name.lower() for name in names}) < len(names):
            raise ValueError("an archive that can be read in two ways")
        unpacked = sum(member.file_size for member in members)
        if unpacked > size:
            raise ValueError(f"an archive of {size:,} bytes that would fill {unpacked:,}")
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of its part {damaged} is another than when it was saved")
        folder = names[0].partition("/")[0]
        storages = f"{folder}/data/"
        sizes = {
            member.filename.removeprefix(storages): member.file_size
            for member in members
            if member.filename.startswith(storages)
        }
        Examination(sizes).run(io.BytesIO(archive.read(f"{folder}/data.pkl")))


def examine_legacy(file: IO[bytes]) -> None:
    """Raise unless a file of torch before 1.6 is as long as its pickles say, and they fit what it holds."""
    size = file_size(file)
    try:
        start = (Examination().run(file), Examination().run(file))
    except Exception:
        start = (0, 0)
    if start != LEGACY:
        raise ValueError("neither an archive nor an older file of torch")
    Examination().run(file)  # the machine that saved it
    examination = Examination()
    examination.run(file)
    keys = Examination().run(file)
    if type(keys) is not list or sorted(keys) != sorted(examination.storages):
        raise ValueError("other tensors follow than those that it names")
    # Each storage follows with its length, of 8 bytes.
    whole = file.tell() + sum(8 + storage.bytes for storage in examination.storages.values())
    if whole > size:
        raise ValueError(f"it needs {whole:,} bytes and has {size:,}")


def to_plain(value: Any, done: dict[int, tuple[Any, Any]] | None = None, depth: int = 0) -> Any:
    """The same with numpy's arrays and argparse's settings where stand-ins are left; dicts and lists in place.

    Args:
        value: what torch read.
        done: what was met before and what it became, by id; both, so that no id is used again.
        depth: how many hold it.
    """
    done = {} if done is None else done
    if isinstance(value, FILLED):
        return value.plain()
    if not isinstance(value, dict | list | tuple | Namespace):
        return value
    if id(value) in done:
        return done[id(value)][1]
    if depth > DEEPEST:
        raise ValueError(f"entries nested more than {DEEPEST} deep")
    done[id(value)] = value, value
    if isinstance(value, Namespace):
        to_plain(vars(value), done, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():  # not update(), which in a Counter adds
            value[key] = to_plain(item, done, depth + 1)
    elif isinstance(value, list):
        value[:] = [to_plain(item, done, depth + 1) for item in value]
    elif type(value) is tuple:
        items = tuple(to_plain(item, done, depth + 1) for item in value)
        if any(new is not old for new, old in zip(items, value, strict=True)):
            done[id(value)] = value, items
    return done[id(value)][1]


def require_state(state: Any, path: str) -> None:
    """Raise unless it is a dictionary, and the entries of the model in it have names."""
    if not isinstance(state, dict):
        raise ValueError(
            f"{path}: needs a checkpoint of fairseq-train; got {type(state).__name__} instead of a dictionary. "
            "Use another."
        )
    for part, entries in (("", state), (" of the model", state.get("model"))):
        for key in entries if isinstance(entries, dict) else ():
            if type(key) is not str:
                raise ValueError(
                    f"{path}: needs entries{part} with names; got {key!r}. Use a checkpoint that fairseq-train wrote."
                )


def refusal(path: str, torch_error: str) -> str:
    """Why `path` is not loaded, from the text of torch's error."""
    found = re.search(r"GLOBAL (\S+)", torch_error) or re.search(r"WeightsUnpickler error:\s*(.*)", torch_error)
    if found is None:
        return (
            f"{path}: needs a whole checkpoint; got one that cannot be read ({torch_error[:200].strip()}). "
            "Use another one: this is no checkpoint, or a damaged one."
        )
    return (
        f"{path}: needs tensors, numbers, text and settings only; got {found[1]}, which could run code. "
        "Nothing of it was run. Use a checkpoint from a source you trust, saved without that object."
    )
