"""Unpacks the model archives of `from_pretrained`."""

import bz2
import gzip
import hashlib
import lzma
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from fairseq import file_utils

from ..checkpoints.files import Bounded, Overflow
from ._replace import replace

# How a compressed archive begins; others are tar files as they are.
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZ": bz2.open,
    b"\xfd7": lzma.open,
    b"]\0": lzma.open,
}
# Bytes when unpacked: how many for a byte of the archive, and how many for nothing. Weights hardly shrink, text to 1/5.
MOST, FEW = 10, 2**26
MEMBERS = 10_000


def archives_stay_in_their_folder() -> None:
    """Unpack an archive for `from_pretrained` into fairseq's cache, and nowhere else; keep the archive.

    Without it: members are written wherever their names and links lead, and a folder replaces the user's archive
    (file_utils.py:88). The cache is PYTORCH_FAIRSEQ_CACHE; an archive that fairseq downloaded is still replaced by its
    content. Goes when fairseq unpacks with tarfile's filter.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def load_archive_file(archive_file: str) -> Any:
            path = Path(archive_file)
            if path.is_file():
                return str(unpacked(path))
            # A folder, or an address: this finds it in the cache, as an archive the first time.
            try:
                found = Path(file_utils.cached_path(archive_file))
            except OSError:
                return original(archive_file)
            if found.is_file():
                folder = unpacked(found)
                found.unlink()
                folder.rename(found)
            return original(archive_file)

        return load_archive_file

    replace(file_utils, "load_archive_file", make)


def unpacked(archive: Path) -> Path:
    """Return the folder in fairseq's cache with an archive's content, unpacked there on first use.

    If all members are in one folder, that folder is the result. The tar file may be compressed.

    Raises:
        ValueError: if it is none, is damaged, much larger than its file, or a member would be written outside.
    """
    stat = archive.stat()
    version = f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}"
    folder = Path(file_utils.PYTORCH_FAIRSEQ_CACHE) / f"unpacked-{hashlib.sha256(version.encode()).hexdigest()[:32]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        root = Path(aside) / "all"
        unpack(archive, root)
        entries = list(root.iterdir())
        root = entries[0] if len(entries) == 1 and entries[0].is_dir() else root
        try:
            root.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first
                raise
    return folder


def unpack(archive: Path, folder: Path) -> None:
    """Write a tar file's members into a folder, if tarfile's `data` filter allows it."""
    if not hasattr(tarfile, "data_filter"):
        raise ValueError(
            f"{archive}: needs Python 3.11.4 or newer to be unpacked safely; got an older one. "
            "Use tar to unpack it, and the folder's name."
        )
    try:
        with archive.open("rb") as file, OPENERS.get(file.read(2), open)(archive, "rb") as stream:
            most = MOST * archive.stat().st_size + FEW
            bounded: Any = Bounded(stream, most)
            with tarfile.open(fileobj=bounded, mode="r:") as members:
                members.extractall(folder, few(members, most), filter=inside)
    except (tarfile.TarError, EOFError, OSError, ValueError, lzma.LZMAError, zlib.error) as error:
        reason = "a member that could lead out of it" if isinstance(error, tarfile.FilterError) else "one that is none"
        reason = "one that is far larger when unpacked" if isinstance(error, Overflow) else reason
        raise ValueError(
            f"{archive}: needs an archive (.tar.gz, say) of a model's folder; got {reason} ({error}). "
            "Nothing of it was kept. Use a whole one from a source you trust, or the folder itself."
        ) from error


def few(members: Iterable[tarfile.TarInfo], most: int) -> Iterator[tarfile.TarInfo]:
    """The members, unless they are too many or too large; the holes of sparse ones count."""
    size = 0
    for count, member in enumerate(members, start=1):
        size += member.size
        if size > most or count > MEMBERS:
            raise Overflow(f"more than {most:,} bytes or {MEMBERS:,} members")
        yield member


def inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """tarfile's `data` filter without symbolic links, which lead out of the folder in Python before 3.11.13."""
    if member.issym():
        raise tarfile.FilterError(f"{member.name!r} is a symbolic link; tar --dereference makes none")
    return tarfile.data_filter(member, folder)
