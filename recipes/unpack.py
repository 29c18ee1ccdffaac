"""Unpacks a zip or tar archive into a new folder, or refuses it before it writes anything.

    python recipes/unpack.py ARCHIVE FOLDER [--limit BYTES]

Archives are refused if a member would be written outside FOLDER (`../x`, `/x`, `C:\\x`) or is a link or device, if the
content exceeds the limit, or if the file is truncated, encrypted or no archive. FOLDER must be new; it appears when it
is complete.
"""

import argparse
import contextlib
import gzip
import lzma
import shutil
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

BLOCK = 1 << 20  # bytes
# Bytes of all members; all archives of WMT16 together have 1.2 GB compressed.
LIMIT = 10_000_000_000
MEMBERS = 200_000
TEXT_LIMIT = 1_000_000_000  # of a text that is read whole
LONGEST_HEADER = 1_000_000  # bytes of a member's name and what else tar says of it, which tarfile reads whole
ENCRYPTED = 1  # the bit of a zip member's flags

# Errors of zipfile and tarfile about damage or an unknown compression.
DAMAGE = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    IndexError,
    OverflowError,
    RuntimeError,
)


class BoundedHeader(tarfile.TarInfo):
    """A header of a tar archive, for `tarfile.open`; a huge one is refused before it is read."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in b"LKxgX" and self.size > LONGEST_HEADER:
            raise ValueError(f"needs headers of at most {LONGEST_HEADER:,} bytes; got one of {self.size:,}")
        return super()._proc_member(archive)  # type: ignore[misc]


class Member(NamedTuple):
    """An entry of an archive: name, kind, unpacked size, and a function that opens it."""

    name: str
    kind: str  # "file", "folder", "link", "device", ...
    size: int  # bytes
    open: Callable[[], Any]  # a binary file


def zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    """Yields the entries of a zip archive; a zip made on Unix keeps file types in the mode, others do not."""
    for info in archive.infolist():
        file_type = stat.S_IFMT(info.external_attr >> 16)
        kind = "folder" if info.is_dir() else "file"
        if file_type and not (stat.S_ISREG(file_type) or stat.S_ISDIR(file_type)):
            kind = "link" if stat.S_ISLNK(file_type) else "device"
        if info.flag_bits & ENCRYPTED:
            kind = "file that is encrypted"
        yield Member(info.orig_filename, kind, info.file_size, partial(archive.open, info))


def tar_members(archive: tarfile.TarFile, limit: int) -> Iterator[Member]:
    """Yields the entries of a tar archive, and reads the file to its end, where gzip keeps its checksum.

    Raises:
        ValueError: if the end mark is missing, so that members may be, or more than `limit` bytes follow it.
    """
    for info in archive:
        kinds = {"file": info.isreg(), "folder": info.isdir(), "link": info.issym() or info.islnk()}
        kind = next((kind for kind, applies in kinds.items() if applies), "device")
        yield Member(info.name, kind, info.size, partial(archive.extractfile, info))
    file = archive.fileobj
    assert file is not None
    file.seek(archive.offset)
    if file.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError("no mark of its end: it was cut off between two members")
    while file.read(BLOCK):
        if file.tell() > archive.offset + limit:
            raise ValueError(f"needs at most {limit:,} bytes; got more after its end")


def collect(members: Iterable[Member], limit: int) -> list[Member]:
    """Returns all members, checked one by one, so that a huge one is refused before it is read.

    Raises:
        ValueError: if a member is refused, or the members are too many or too large.
    """
    total = 0
    kept = []
    for member in members:
        check(member)
        kept.append(member)
        total += member.size
        if total > limit:
            raise ValueError(f"needs at most {limit:,} bytes when unpacked; got {total:,} with {member.name!r}")
        if len(kept) > MEMBERS:
            raise ValueError(f"needs at most {MEMBERS:,} members; got more, with {member.name!r}")
    return kept


def check(member: Member) -> None:
    """Raises ValueError if a member is neither a file nor a folder, or would be written outside its folder."""
    path = PurePosixPath(member.name)
    leads_out = path.is_absolute() or ".." in path.parts or any(character in member.name for character in "\\:\0")
    if leads_out:
        raise ValueError(f"needs members inside its own folder; got {member.name!r}")
    if member.kind not in ("file", "folder"):
        raise ValueError(f"needs files and folders only; got {member.name!r}, a {member.kind}")


def read_text(path: Path, is_wanted: Callable[[str], bool]) -> bytes:
    """All of a text, which may be packed by gzip, or the one text in a zip archive whose name is wanted.

    Raises:
        ValueError: it has more than `TEXT_LIMIT` bytes; no more are read. Or the archive has no such text, or several.
    """
    with contextlib.ExitStack() as stack:
        if zipfile.is_zipfile(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            names = list(filter(is_wanted, archive.namelist()))
            if len(names) != 1:
                raise ValueError(f"{path}: needs one text; got {names or archive.namelist()}. Use the text itself.")
            file: Any = stack.enter_context(archive.open(names[0]))
        else:
            file = stack.enter_context(path.open("rb"))
            file = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == b"\x1f\x8b" else file
        content: bytes = file.read(TEXT_LIMIT + 1)
    if len(content) > TEXT_LIMIT:
        raise ValueError(f"{path}: needs a text of at most {TEXT_LIMIT:,} bytes; got more. Use that of its publisher.")
    return content


def unpack(archive: Path, folder: Path, *, limit: int = LIMIT) -> None:
    """Unpacks an archive.

    Args:
        archive: a zip or tar file; a tar may be compressed.
        folder: the folder to create; it appears only if every member is whole.
        limit: maximum bytes of all members.

    Raises:
        ValueError: if the archive or a member is refused; then `folder` does not exist.
    """
    if folder.exists():
        raise ValueError(f"FOLDER: needs a new one; got {folder}, which is there. Use another, or remove it.")
    fresh = folder.with_name(folder.name + ".unpacking")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        with contextlib.ExitStack() as stack:
            if zipfile.is_zipfile(archive):
                members = collect(zip_members(stack.enter_context(zipfile.ZipFile(archive))), limit)
            else:
                members = collect(
                    tar_members(stack.enter_context(tarfile.open(archive, tarinfo=BoundedHeader)), limit), limit
                )
            fresh.mkdir(parents=True)
            for member in members:
                write(member, fresh / member.name)
        fresh.rename(folder)
    except DAMAGE as error:
        got = str(error).partition("\n")[0]  # tarfile has a line for each way of packing
        raise ValueError(f"{archive}: needs a whole zip or tar archive; got {got}. Use an undamaged one.") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{archive}: {error}. Use the archive of its publisher.") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write(member: Member, path: Path) -> None:
    """Writes one member to `path`."""
    if member.kind == "folder":
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with member.open() as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, BLOCK)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", type=Path, metavar="ARCHIVE")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--limit", type=int, metavar="BYTES", default=LIMIT, help="of all members (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        unpack(arguments.archive, arguments.folder, limit=arguments.limit)
    except ValueError as error:
        sys.exit(f"unpack.py: {error}")


if __name__ == "__main__":
    main()
