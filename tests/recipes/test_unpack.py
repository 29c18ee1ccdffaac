"""Unpacking: archives that lead out of their folder, with links, damaged ones, and honest ones."""

import gzip
import io
import lzma
import random
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import unpack

from .shell import RECIPES, run_python

CONTENT = b"some text\n" * 1000


def write_zip(path: Path, *names: str, mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip whose first member is honest, and which has these besides, with this Unix mode."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("corpus/train.txt", CONTENT)
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"/etc")
    return path


def write_tar(path: Path, *members: tarfile.TarInfo, compression: str = "gz") -> Path:
    """A tar whose first member is honest, and which has these besides."""
    with tarfile.open(path, f"w:{compression}") as archive:  # type: ignore[call-overload]
        honest = tarfile.TarInfo("corpus/train.txt")
        honest.size = len(CONTENT)
        archive.addfile(honest, io.BytesIO(CONTENT))
        for member in members:
            archive.addfile(member)
    return path


def tar_member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_an_honest_archive(kind: str, tmp_path: Path) -> None:
    if kind == "zip":
        archive = write_zip(tmp_path / "a.zip", "corpus/empty/", "top.txt", "with spaces/..dots..txt")
    else:
        folder = tar_member("corpus/empty", tarfile.DIRTYPE)
        archive = write_tar(tmp_path / "a.tgz", folder, tar_member("top.txt"), tar_member("with spaces/..dots..txt"))
    process = run_python(RECIPES / "unpack.py", archive, tmp_path / "new/folder")
    assert process.returncode == 0, process.stderr
    new = tmp_path / "new/folder"
    assert (new / "corpus/train.txt").read_bytes() == CONTENT
    assert (new / "corpus/empty").is_dir()
    assert (new / "with spaces/..dots..txt").is_file()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]
    process = run_python(RECIPES / "unpack.py", archive, new)
    assert process.returncode == 1
    assert process.stderr.startswith(f"unpack.py: FOLDER: needs a new one; got {new}, which is there")


def assert_refused(archive: Path, message: str, limit: int = unpack.LIMIT) -> None:
    """Refused with this message, and nothing written beside the archive."""
    with pytest.raises(ValueError, match=f"{re.escape(f'{archive}: ')}.*{re.escape(message)}"):
        unpack.unpack(archive, archive.parent / "new", limit=limit)
    assert list(archive.parent.rglob("*")) == [archive] * archive.exists()


@pytest.mark.parametrize(
    "name", ["../escaped.txt", "corpus/../../escaped.txt", "/escaped.txt", "C:\\escaped.txt", "..\\escaped.txt", ".."]
)
def test_an_archive_that_leads_out(name: str, tmp_path: Path) -> None:
    for archive in (write_zip(tmp_path / "a", name), write_tar(tmp_path / "a", tar_member(name))):
        assert_refused(archive, f"needs members inside its own folder; got {name!r}")


KINDS = "needs files and folders only; got 'corpus/etc', a "


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: write_zip(path, "corpus/etc", mode=stat.S_IFLNK | 0o777), f"{KINDS}link"),
        (lambda path: write_zip(path, "corpus/etc", mode=stat.S_IFIFO | 0o777), f"{KINDS}device"),
        (lambda path: write_tar(path, tar_member("corpus/etc", tarfile.SYMTYPE, "/etc/passwd")), f"{KINDS}link"),
        (lambda path: write_tar(path, tar_member("corpus/etc", tarfile.LNKTYPE, "/etc/passwd")), f"{KINDS}link"),
        (lambda path: write_tar(path, tar_member("corpus/etc", tarfile.CHRTYPE)), f"{KINDS}device"),
        (lambda path: path, "No such file"),
        pytest.param(
            lambda path: write_zip(path, "twice", "twice"),
            "File exists",
            marks=pytest.mark.filterwarnings("ignore:Duplicate name"),
        ),
    ],
)
def test_what_no_archive_may_have(write: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    assert_refused(write(tmp_path / "a"), message)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_a_truncated_archive(write: Callable[[Path], Path], kept: float, tmp_path: Path) -> None:
    archive = write(tmp_path / "a")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(kept * len(content))])
    assert_refused(archive, "needs a whole zip or tar archive; got")


@pytest.mark.parametrize("opened", [open, gzip.open, lzma.open])
def test_a_tar_cut_between_two_members(opened: Callable, tmp_path: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in ("one.txt", "two.txt"):
            member = tarfile.TarInfo(name)
            member.size = 100
            archive.addfile(member, io.BytesIO(b"x" * 100))
    path = tmp_path / "a.tar"
    with opened(path, "wb") as file:
        file.write(plain.getvalue()[:1024])  # a header and a block
    assert_refused(path, "needs a whole zip or tar archive; got no mark")


def test_an_encrypted_zip(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip")
    content = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + flags] |= 1
    archive.write_bytes(content)
    assert_refused(archive, "needs files and folders only; got 'corpus/train.txt', a file that is encrypted")


METHODS = {"zip": zipfile.ZIP_DEFLATED, "zip-bzip2": zipfile.ZIP_BZIP2, "zip-lzma": zipfile.ZIP_LZMA}


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", *METHODS])
def test_damaged_archives_end_in_a_message(compression: str, tmp_path: Path) -> None:
    """Single bytes changed: unpacked whole, or refused; never a traceback, and never a half-made folder."""
    path = tmp_path / "whole"
    if compression in METHODS:
        whole = write_zip(path, method=METHODS[compression]).read_bytes()
    else:
        whole = write_tar(path, compression=compression).read_bytes()
    rng = random.Random(1)
    messages = []
    for number in range(200):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        folder = tmp_path / f"new{number}"
        try:
            unpack.unpack(tmp_path / "damaged", folder)
        except ValueError as error:
            messages.append(str(error))
            assert not folder.exists()
    assert len(messages) > 100
    assert all(message.startswith(f"{tmp_path}/damaged: ") for message in messages)


@pytest.mark.parametrize("write", [write_zip, write_tar])
def test_an_archive_above_the_limit(write: Callable[[Path], Path], tmp_path: Path) -> None:
    archive = write(tmp_path / "a")
    message = "needs at most 9,999 bytes when unpacked; got 10,000 with 'corpus/train.txt'"
    assert_refused(archive, message, len(CONTENT) - 1)
    command = (RECIPES / "unpack.py", archive, tmp_path / "new", "--limit")
    assert message in run_python(*command, len(CONTENT) - 1).stderr
    assert run_python(*command, len(CONTENT)).returncode == 0


def test_a_tar_with_much_after_its_end(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tgz")
    with gzip.open(archive, "ab") as file:
        file.write(bytes(5 << 20))
    assert_refused(archive, "needs at most 1,048,576 bytes; got more after its end", 1 << 20)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "MEMBERS", 2)
    assert_refused(write_zip(tmp_path / "a.zip", "b", "c"), "needs at most 2 members; got more, with 'c'")


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_long_header_is_refused_before_it_is_read(kind: int, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=kind) as archive:
        archive.addfile(tar_member("n" * 2_000_000))
    assert_refused(path, "needs headers of at most 1,000,000 bytes; got one of 2,000,0")


def test_no_text_is_read_beyond_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpack, "TEXT_LIMIT", 1000)
    for name, size in (("bomb", 10**7), ("large", 1001)):
        with gzip.open(tmp_path / name, "wb") as file:
            file.write(bytes(size))
        with pytest.raises(ValueError, match="at most 1,000 bytes; got more"):
            unpack.read_text(tmp_path / name, bool)
    (tmp_path / "text").write_bytes(bytes(1000))
    assert unpack.read_text(tmp_path / "text", bool) == bytes(1000)
