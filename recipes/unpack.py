"""Unpacks a zip or tar archive into a new folder, or refuses it before anything is written.

    python recipes/unpack.py ARCHIVE FOLDER

Refused are archives with a member that would land outside of FOLDER (`../x`, `/x`, `C:\\x`), with links or devices, and
what is truncated or no archive. FOLDER appears when everything is in it, and must not be there before.
"""

import argparse
import contextlib
import shutil
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

BLOCK = 1 << 20  # bytes


class Member(NamedTuple):
    """One entry of an archive: its name, its kind, and how to read it."""

    name: str
    kind: str  # "file", "folder", or what it is instead
    open: Callable[[], Any]  # a binary file


def zip_members(archive: zipfile.ZipFile) -> Iterator[Member]:
    """The entries of a zip archive. A zip made on Unix keeps the type of a file in the mode; others keep none."""
    for info in archive.infolist():
        file_type = stat.S_IFMT(info.external_attr >> 16)
        kind = "folder" if info.is_dir() else "file"
        if file_type and not (stat.S_ISREG(file_type) or stat.S_ISDIR(file_type)):
            kind = "link" if stat.S_ISLNK(file_type) else "device"
        yield Member(info.orig_filename, kind, partial(archive.open, info))


def tar_members(archive: tarfile.TarFile) -> Iterator[Member]:
    """The entries of a tar archive, compressed or not. It is read to its end, where the checksum of a gzip stands."""
    for info in archive:
        kinds = {"file": info.isreg(), "folder": info.isdir(), "link": info.issym() or info.islnk()}
        kind = next((kind for kind, applies in kinds.items() if applies), "device")
        yield Member(info.name, kind, partial(archive.extractfile, info))
    while archive.fileobj is not None and archive.fileobj.read(BLOCK):
        pass


def check(member: Member) -> None:
    """Raises ValueError if a member is neither a file nor a folder below the folder that it is unpacked into."""
    path = PurePosixPath(member.name)
    leads_out = path.is_absolute() or ".." in path.parts or any(character in member.name for character in "\\:\0")
    if leads_out:
        raise ValueError(f"needs members inside its own folder; got {member.name!r}")
    if member.kind not in ("file", "folder"):
        raise ValueError(f"needs files and folders only; got {member.name!r}, a {member.kind}")


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks an archive.

    Args:
        archive: a zip or tar file; a tar may be compressed.
        folder: where its members go; made here, and only if every member is whole.

    Raises:
        ValueError: the archive or one of its members is refused; nothing is left in `folder`.
    """
    if folder.exists():
        raise ValueError(f"FOLDER: needs a new one; {folder} is there. Use another, or remove it.")
    fresh = folder.with_name(folder.name + ".unpacking")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        with contextlib.ExitStack() as stack:
            if zipfile.is_zipfile(archive):
                members = list(zip_members(stack.enter_context(zipfile.ZipFile(archive))))
            else:
                members = list(tar_members(stack.enter_context(tarfile.open(archive))))
            for member in members:
                check(member)
            fresh.mkdir(parents=True)
            for member in members:
                write(member, fresh / member.name)
        fresh.rename(folder)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError) as error:
        raise ValueError(f"{archive}: needs a whole zip or tar archive; got {error}. Use an undamaged one.") from None
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
    arguments = parser.parse_args()
    try:
        unpack(arguments.archive, arguments.folder)
    except ValueError as error:
        sys.exit(f"unpack.py: {error}")


if __name__ == "__main__":
    main()
