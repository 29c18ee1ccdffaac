"""Unpacking: archives that lead out of their folder, with links, damaged ones, and honest ones."""

import gzip
import importlib.util
import io
import lzma
import random
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .shell import RECIPES, run_python

specification: Any = importlib.util.spec_from_file_location("unpack", RECIPES / "unpack.py")
recipe: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(recipe)

CONTENT = b"some text\n" * 1000


def unpack(archive: Path, folder: Path, *options: object) -> subprocess.CompletedProcess[str]:
    return run_python(RECIPES / "unpack.py", archive, folder, *options)


def write_zip(path: Path, *names: str, mode: int = 0) -> Path:
    """A zip whose first member is honest, and which has these besides, with this Unix mode."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("corpus/train.txt", CONTENT)
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, b"/etc")
    return path


def write_tar(path: Path, *members: tarfile.TarInfo) -> Path:
    """A tar whose first member is honest, and which has these besides."""
    with tarfile.open(path, "w:gz") as archive:
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
    process = unpack(archive, tmp_path / "new/folder")
    assert process.returncode == 0, process.stderr
    folder_ = tmp_path / "new/folder"
    assert (folder_ / "corpus/train.txt").read_bytes() == CONTENT
    assert (folder_ / "corpus/empty").is_dir()
    assert (folder_ / "with spaces/..dots..txt").is_file()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]


OUTSIDE = ["../escaped.txt", "corpus/../../escaped.txt", "/escaped.txt", "C:\\escaped.txt", "..\\escaped.txt", ".."]


def assert_refused(process: subprocess.CompletedProcess[str], message: str, folder: Path) -> None:
    """Refused with this message, and nothing written beside the archive."""
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert len(list(folder.rglob("*"))) == 1


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_zip_that_leads_out(name: str, tmp_path: Path) -> None:
    process = unpack(write_zip(tmp_path / "a.zip", name), tmp_path / "new")
    assert_refused(process, f"needs members inside its own folder; got {name!r}", tmp_path)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_tar_that_leads_out(name: str, tmp_path: Path) -> None:
    process = unpack(write_tar(tmp_path / "a.tgz", tar_member(name)), tmp_path / "new")
    assert_refused(process, f"needs members inside its own folder; got {name!r}", tmp_path)


@pytest.mark.parametrize(("mode", "kind"), [(stat.S_IFLNK, "link"), (stat.S_IFIFO, "device")])
def test_a_zip_with_a_link(mode: int, kind: str, tmp_path: Path) -> None:
    process = unpack(write_zip(tmp_path / "a.zip", "corpus/etc", mode=mode | 0o777), tmp_path / "new")
    assert_refused(process, f"needs files and folders only; got 'corpus/etc', a {kind}", tmp_path)


@pytest.mark.parametrize(
    ("kind", "word"), [(tarfile.SYMTYPE, "link"), (tarfile.LNKTYPE, "link"), (tarfile.CHRTYPE, "device")]
)
def test_a_tar_with_a_link(kind: bytes, word: str, tmp_path: Path) -> None:
    member = tar_member("corpus/etc", kind, "/etc/passwd")
    process = unpack(write_tar(tmp_path / "a.tgz", member), tmp_path / "new")
    assert_refused(process, f"needs files and folders only; got 'corpus/etc', a {word}", tmp_path)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 0.9])
@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_a_truncated_archive(kind: str, kept: float, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip") if kind == "zip" else write_tar(tmp_path / "a.tgz")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(kept * len(content))])
    process = unpack(archive, tmp_path / "new")
    assert_refused(process, f"{archive}: needs a whole zip or tar archive; got", tmp_path)


def test_a_zip_with_a_damaged_member(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip")
    content = bytearray(archive.read_bytes())
    content[60] ^= 0xFF
    archive.write_bytes(content)
    process = unpack(archive, tmp_path / "new")
    assert_refused(process, f"{archive}: needs a whole zip or tar archive; got", tmp_path)


@pytest.mark.parametrize("compression", ["w", "w:gz", "w:xz"])
def test_a_tar_cut_between_two_members(compression: str, tmp_path: Path) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in ("one.txt", "two.txt"):
            member = tarfile.TarInfo(name)
            member.size = 100
            archive.addfile(member, io.BytesIO(b"x" * 100))
    path = tmp_path / "a.tar"
    opened = {"w": open, "w:gz": gzip.open, "w:xz": lzma.open}[compression]
    with opened(path, "wb") as file:  # type: ignore[operator]
        file.write(plain.getvalue()[:1024])  # a header and a block
    assert_refused(unpack(path, tmp_path / "new"), f"{path}: needs a whole zip or tar archive; got no mark", tmp_path)


def test_an_encrypted_zip(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip")
    content = bytearray(archive.read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(signature) + flags] |= 1
    archive.write_bytes(content)
    message = f"{archive}: needs files and folders only; got 'corpus/train.txt', a file that is encrypted"
    assert_refused(unpack(archive, tmp_path / "new"), message, tmp_path)


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz", "zip", "zip-bzip2", "zip-lzma"])
def test_damaged_archives_end_in_a_message(compression: str, tmp_path: Path) -> None:
    """Single bytes changed: unpacked whole, or refused; never a traceback, and never a half-made folder."""
    if compression.startswith("zip"):
        method = {"zip": zipfile.ZIP_DEFLATED, "zip-bzip2": zipfile.ZIP_BZIP2, "zip-lzma": zipfile.ZIP_LZMA}[
            compression
        ]
        with zipfile.ZipFile(tmp_path / "whole", "w", method) as archive:
            archive.writestr("corpus/train.txt", CONTENT)
    else:
        with tarfile.open(tmp_path / "whole", f"w:{compression}") as archive_:
            member = tarfile.TarInfo("corpus/train.txt")
            member.size = len(CONTENT)
            archive_.addfile(member, io.BytesIO(CONTENT))
    whole = (tmp_path / "whole").read_bytes()
    rng = random.Random(1)
    messages = []
    for number in range(200):
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (tmp_path / "damaged").write_bytes(damaged)
        folder = tmp_path / f"new{number}"
        try:
            recipe.unpack(tmp_path / "damaged", folder)
        except ValueError as error:
            messages.append(str(error))
            assert not folder.exists()
    assert len(messages) > 100
    assert all(message.startswith(f"{tmp_path}/damaged: ") for message in messages)


@pytest.mark.parametrize("kind", ["zip", "tgz"])
def test_an_archive_above_the_limit(kind: str, tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "a.zip") if kind == "zip" else write_tar(tmp_path / "a.tgz")
    process = unpack(archive, tmp_path / "new", "--limit", len(CONTENT) - 1)
    assert_refused(process, "needs at most 9,999 bytes when unpacked; got 10,000 with 'corpus/train.txt'", tmp_path)
    assert unpack(archive, tmp_path / "new", "--limit", len(CONTENT)).returncode == 0


def test_a_tar_with_much_after_its_end(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "a.tgz")
    with gzip.open(archive, "ab") as file:
        file.write(bytes(5 << 20))
    process = unpack(archive, tmp_path / "new", "--limit", 1 << 20)
    assert_refused(process, "needs at most 1,048,576 bytes; got more after its end", tmp_path)


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "MEMBERS", 2)
    with pytest.raises(ValueError, match="needs at most 2 members; got more, with 'c'"):
        recipe.unpack(write_zip(tmp_path / "a.zip", "b", "c"), tmp_path / "new")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path: Path) -> None:
    process = unpack(write_zip(tmp_path / "a.zip", "twice", "twice"), tmp_path / "new")
    assert_refused(process, "File exists", tmp_path)


def test_a_missing_archive(tmp_path: Path) -> None:
    process = unpack(tmp_path / "none.zip", tmp_path / "new")
    assert process.returncode == 1
    assert "No such file" in process.stderr


def test_a_folder_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    process = unpack(write_zip(tmp_path / "a.zip"), tmp_path / "new")
    assert process.returncode == 1
    assert f"FOLDER: needs a new one; got {tmp_path}/new, which is there" in process.stderr


def test_a_long_header_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for kind in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        path = tmp_path / f"{kind}.tar"
        with tarfile.open(path, "w", format=kind) as archive:
            archive.addfile(tar_member("n" * 2_000_000))
        process = unpack(path, tmp_path / "out")
        assert process.returncode == 1
        assert f"unpack.py: {path}: needs headers of at most 1,000,000 bytes; got one of 2,000,0" in process.stderr
        assert process.stderr.count("\n") == 1


def test_no_text_is_read_beyond_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "TEXT_LIMIT", 1000)
    for name, size in (("bomb", 10**7), ("large", 1001)):
        with gzip.open(tmp_path / name, "wb") as file:
            file.write(bytes(size))
        with (
            gzip.open(tmp_path / name) as file,
            pytest.raises(ValueError, match="needs .* at most 1,000 bytes; got more"),
        ):
            recipe.read_text(file, tmp_path / name)
    assert recipe.read_text(io.BytesIO(bytes(1000)), tmp_path) == bytes(1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text8_text.py", "tatoeba_text.py"])
def test_texts_that_are_bombs_are_refused(name: str, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.gz", "wb") as file:
        for _ in range(1001):
            file.write(bytes(1_000_000))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("text8" if name == "text8_text.py" else "pairs.txt", "w", force_zip64=True) as file:
            for _ in range(1001):
                file.write(bytes(1_000_000))
    rest = (tmp_path,) if name == "text8_text.py" else ("de", tmp_path, "--held-out", 1)
    for bomb in ("bomb.zip",) if name == "text8_text.py" else ("bomb.zip", "bomb.gz"):
        process = run_python(RECIPES / name, tmp_path / bomb, *rest)
        assert process.returncode == 1
        assert "needs a text of at most 1,000,000,000 bytes; got more" in process.stderr
        assert "Traceback" not in process.stderr


@pytest.mark.parametrize("kind", ["folder", "link"])
@pytest.mark.parametrize(
    ("name", "place"), [("imdb_text.py", "train/neg/x.txt"), ("bbc_text.py", "tech/x.txt"), ("imdb_lm_text.py", ".")]
)
def test_a_folder_or_a_dangling_link_in_the_place_of_a_text_is_named(
    name: str, place: str, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "texts" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "folder":
        path.mkdir(exist_ok=True)
    else:
        path.symlink_to("nowhere")
    process = run_python(RECIPES / name, tmp_path / "texts", tmp_path)
    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert process.stderr.startswith(f"{name}: ")
    assert str(tmp_path / "texts") in process.stderr
