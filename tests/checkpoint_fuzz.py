"""Checkpoints that are forged, or whole but for a change or two: in the archive, in the pickle's steps, in any bytes.

`python -m tests.checkpoint_fuzz SEED COUNT` reads COUNT of them, and says how many were refused, gave plain values, and
were loaded by torch itself. A process of its own: it ends by a signal where one takes 20 s; one of 3 GB fails.
"""

import argparse
import faulthandler
import io
import pickletools
import random
import resource
import signal
import struct
import sys
import time
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import Dictionary

import fairseq_tiedemb.plugin  # noqa: F401
from fairseq_tiedemb.checkpoints.files import read_file

from .checkpoint_forge import forged_file, known_files

SECONDS, BYTES = 20, 3 * 2**30
END, END64, LOCATOR = "<4s4H2LH", "<4sQ2H2L4Q", "<4sLQL"
SIGNATURES = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7", b"PK\7\10")
NUMBERS = (0, 1, 2, 30, 46, 64, 255, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
# What a pickle might say anywhere: steps of torch's pickles and others, a call of code, and deep nesting.
STEPS = [bytes([code]) for code in b"().0123456789NQRSTUVX[]abceghijklmopqrstu}" + bytes(range(0x80, 0x98))]
STEPS += [b"cposix\nsystem\n", b"ctorch\nqint8\n", b"ctorch._utils\n_rebuild_tensor_v3\n", b"\x85" * 100_000]
STEPS += [b"h\0", b"h\1", b"h\2", b"X\xff\xff\xff\x7f", b"\x8a\xff", b"K\1", b"X\1\0\0\0a", b"](h\0h\1e"]
STEPS.append(b"cnumpy\ndtype\n")
# Pickles of a second archive in the file: a text that nobody may get to see, and a key nested so deep that it crashes.
UNREAD = (b"\x80\x02}X\1\0\0\0aX\6\0\0\0unreads." + bytes(9999), b"\x80\x02})" + b"\x85" * 10**6 + b"Ns.")
PLAIN = (str, bytes, int, float, bool, type(None), np.generic, np.dtype, torch.Size, torch.device, torch.dtype)


def honest() -> list[tuple[bytes, dict[str, bytes] | None]]:
    """Whole checkpoints, and the parts of those that are archives."""
    table = torch.arange(64.0).reshape(16, 4)
    state = {
        "args": argparse.Namespace(arch="lstm", dropout=0.1),
        "model": OrderedDict(embed=table, output=table, half=table[:3].half().t(), counter=torch.tensor(3)),
        "extra_state": {"arrays": [np.arange(20.0), np.float32(2.5), np.ones((2, 3), bool)], "bytes": bytes(range(99))},
        "task_state": {"words": [f"word{number}" for number in range(50)], "counts": Counter("abca"), "set": {1, "a"}},
        "sizes": [torch.Size((2, 3)), torch.device("cpu"), torch.float16, torch.nn.Parameter(torch.ones(2))],
    }
    files: list[tuple[bytes, dict[str, bytes] | None]] = []
    for changes, options in [(state, {}), ({**state, "model": OrderedDict(state["model"])}, {}), (state, None)]:
        buffer = io.BytesIO()
        torch.save(changes, buffer, _use_new_zipfile_serialization=options is not None)
        files.append((buffer.getvalue(), None))
    for data, _ in files[:2]:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files.append((data, {name: archive.read(name) for name in archive.namelist()}))
    return files


def packed(parts: dict[str, bytes]) -> bytes:
    """An archive of these parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def other_steps(rng: random.Random, pickled: bytes) -> bytes:
    """A pickle with some steps left out, said again, many times, elsewhere, or others put in."""
    places = [place for _, _, place in pickletools.genops(pickled) if place is not None]
    steps = [pickled[start:end] for start, end in zip(places, [*places[1:], len(pickled)], strict=True)]
    for _ in range(rng.choice((1, 1, 2, 5))):
        start = rng.randrange(1, len(steps) - 1)
        part = steps[start : start + rng.randint(1, 12)]
        choice = rng.randrange(6)
        if choice == 0:
            del steps[start : start + len(part)]
        elif choice == 1:
            steps[start:start] = part * rng.choice((1, 1, 10, 1000, 20_000))
        elif choice == 2:
            steps[rng.randrange(1, len(steps) - 1)] = steps[start]
        elif choice == 3:
            steps[start] = bytes(rng.choice((byte, rng.randrange(256))) for byte in steps[start])
        else:
            step = rng.choice(STEPS)
            steps.insert(start, step * rng.choice((1, 1, 3, 10_000 // len(step))))
    return b"".join(steps)


def other_bytes(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, left out, said twice, or put before or behind."""
    changed, start = bytearray(data), rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 8, 64, 1000)))
    choice = rng.randrange(5)
    if choice == 0:
        del changed[start:end]
    elif choice == 1:
        changed[start:start] = data[start:end]
    elif choice == 2:
        noise = rng.choice((rng.randbytes(rng.randint(1, 100)), data[:start], data))
        changed = bytearray(rng.choice((noise + data, data + noise)))
    else:
        for _ in range(rng.randint(1, 20)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def other_numbers(rng: random.Random, data: bytes) -> bytes:
    """Numbers of the archive's records changed: sizes, offsets, counts, flags."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        signature = rng.choice(SIGNATURES)
        places = [place for place in range(len(data)) if data.startswith(signature, place)]
        if not places:
            continue
        place = rng.choice(places) + rng.randrange(4, 56, 2)
        width = rng.choice((2, 4, 8))
        old = int.from_bytes(changed[place : place + width], "little")
        new = rng.choice((rng.choice(NUMBERS), old + rng.choice((-1, 1, 46, 64)), len(data), rng.randrange(len(data))))
        changed[place : place + width] = (new % 256**width).to_bytes(width, "little")
    return bytes(changed[: len(data)])


def directory_of(data: bytes) -> tuple[int, list[bytes]]:
    """Where an archive's directory starts, and its headers."""
    start = struct.unpack(END, data[-22:])[6]
    found, place = [], start
    while data.startswith(b"PK\1\2", place):
        length = 46 + sum(struct.unpack("<3H", data[place + 28 : place + 34]))
        found.append(data[place : place + length])
        place += length
    return start, found


def ended(records: bytes, headers: list[bytes], offset: int, zip64: bool = False) -> bytes:
    """An archive of these records and headers, whose end says that its directory is at an offset."""
    directory, count = b"".join(headers), len(headers)
    end64 = struct.pack(END64, b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), offset)
    end64 += struct.pack(LOCATOR, b"PK\6\7", 0, len(records) + len(directory), 1)
    end = struct.pack(END, b"PK\5\6", 0, 0, count, count, len(directory), 2**32 - 1 if zip64 else offset % 2**32, 0)
    return records + directory + (end64 if zip64 else b"") + end


def moved(header: bytes, by: int) -> bytes:
    """A header whose record is said to be elsewhere."""
    place = struct.unpack_from("<L", header, 42)[0] + by
    return header[:42] + struct.pack("<L", place % 2**32) + header[46:]


def other_directory(rng: random.Random, data: bytes) -> bytes:
    """Headers swapped, said twice, left out, or of one record; numbers in zip64's fields."""
    start, headers = directory_of(data)
    first, second = rng.randrange(len(headers)), rng.randrange(len(headers))
    choice = rng.randrange(5)
    if choice == 0:
        headers[first], headers[second] = headers[second], headers[first]
    elif choice == 1:
        headers.insert(first, headers[second])
    elif choice == 2:
        del headers[first]
    elif choice == 3:
        name = 46 + struct.unpack_from("<H", headers[first], 28)[0]
        headers[first] = headers[second][:28] + headers[first][28:42] + headers[second][42:46] + headers[first][46:name]
    else:
        offset = rng.choice((struct.unpack_from("<L", headers[first], 42)[0], rng.choice(NUMBERS)))
        end = 46 + struct.unpack_from("<H", headers[first], 28)[0]
        headers[first] = (
            headers[first][:30] + struct.pack("<H", 12) + headers[first][32:42] + b"\xff" * 4 + headers[first][46:end]
        ) + struct.pack("<2HQ", 1, 8, offset)
    return ended(data[:start], headers, start + rng.choice((0, 0, 0, 1, -1)), rng.random() < 0.5)


def two_archives(outer: bytes, inner: bytes, zip64: bool = False) -> bytes:
    """A file whose end says where the directory of `outer` is, and right before which the one of `inner` is."""
    (start, headers), (inner_start, inner_headers) = directory_of(outer), directory_of(inner)
    records = outer[:start] + b"".join(headers) + inner[:inner_start]
    return ended(records, [moved(header, start - inner_start) for header in inner_headers], start, zip64)


def changed_files(rng: random.Random) -> Callable[[], bytes]:
    """A source of files that are whole but for a change or two."""
    files = honest()
    archives = [packed(parts) for _, parts in files if parts]

    def changed() -> bytes:
        data, parts = rng.choice(files)
        if parts and rng.random() < 0.7:
            name = next(name for name in parts if name.endswith("/data.pkl"))
            return packed({**parts, name: other_steps(rng, parts[name])})
        if parts:
            whole = rng.choice(archives)
            other = packed({**parts, next(iter(parts)): rng.choice(UNREAD)})
            return two_archives(other, whole, rng.random() < 0.5) if rng.random() < 0.3 else other_directory(rng, whole)
        return rng.choice((other_bytes, other_numbers))(rng, data)

    return changed


def touch(value: Any, seen: dict[int, Any]) -> None:
    """Read all of a value, which follows its pointers; what several entries hold, once.

    Raises:
        TypeError: if it is none of the plain ones, or was not examined.
    """
    if id(value) in seen:
        return
    seen[id(value)] = value
    if type(value) in (list, tuple, set, dict, OrderedDict, Counter):
        for item in [*value, *(value.values() if isinstance(value, dict) else ())]:
            touch(item, seen)
    elif type(value) in (argparse.Namespace, Dictionary):
        touch(vars(value), seen)
    elif type(value) in (np.ndarray, torch.Tensor, torch.nn.Parameter):
        value.tolist()
    elif not isinstance(value, PLAIN) or (type(value) is str and value == "unread"):
        raise TypeError(f"{type(value)} is no plain value")


def load_by_torch(data: bytes) -> bool:
    """Whether torch loads it without our examination: whoever calls torch.load has the stand-ins and nothing else."""
    if len(data) > 100_000 or any(name in data for name in (b"_rebuild_", b"Tensor", b"Storage")):
        return False  # torch's own are its own
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except Exception:
        return False
    return True


def main(seed: int, count: int) -> None:
    faulthandler.enable()
    room = BYTES + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    warnings.simplefilter("ignore")
    rng, results, slowest = random.Random(seed), Counter[str](), 0.0
    changed, known = changed_files(rng), known_files()
    for number in range(-len(known), count):
        is_forged = number < 0 or number % 2 == 0
        data = known[number] if number < 0 else forged_file(rng) if is_forged else changed()
        print(f"case {number} of seed {seed}", file=sys.stderr, flush=True)
        signal.alarm(SECONDS)
        start = time.monotonic()
        try:
            touch(read_file(io.BytesIO(data), "forged.pt"), {})
            results["plain"] += 1
        except ValueError as error:
            if "forged.pt: needs" not in str(error) or "memory" in str(error).lower():
                raise
            results["refused"] += 1
        slowest = max(slowest, time.monotonic() - start)
        results["loaded"] += is_forged and load_by_torch(data)
        signal.alarm(0)
    counts = ", ".join(f"{results[name]} {name}" for name in ("refused", "plain", "loaded"))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{counts}, at most {slowest:.1f} s and {most} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
