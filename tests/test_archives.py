"""Archives of models: unpacked into fairseq's cache, nowhere else, and the user's own stays."""

import io
import logging
import re
import tarfile
from pathlib import Path

import pytest
from fairseq import file_utils

import fairseq_tiedemb  # noqa: F401  (mends fairseq)
from fairseq_tiedemb.compat import archives


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """fairseq's cache, for one test."""
    monkeypatch.setattr(file_utils, "PYTORCH_FAIRSEQ_CACHE", tmp_path / "home" / "cache")
    return tmp_path / "home" / "cache"


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", *, size: int = 4, note: str = ""
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 0 if link else size
    info.pax_headers = {"comment": note} if note else {}
    return info


def packed(path: Path, *members: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    """An archive whose files say `text`."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info in members:
            archive.addfile(info, io.BytesIO(b"text".ljust(info.size, b"\0")))
    return path


@pytest.mark.parametrize(("mode", "suffix"), [("w:gz", "tar.gz"), ("w:bz2", "tar.bz2"), ("w", "tar"), ("w:xz", "bin")])
@pytest.mark.parametrize("names", [("model/model.pt", "model/dict.txt"), ("model.pt", "dict.txt"), ("m/model.pt",)])
def test_an_archive_is_unpacked_and_stays(
    names: tuple[str, ...], mode: str, suffix: str, tmp_path: Path, cache: Path
) -> None:
    path = packed(tmp_path / f"model.{suffix}", *map(member, names), mode=mode)
    before = path.read_bytes()
    for _ in range(2):
        folder = Path(file_utils.load_archive_file(str(path)))
        assert {each.name: each.read_text() for each in folder.iterdir()} == {Path(name).name: "text" for name in names}
        assert path.read_bytes() == before
        assert list(cache.iterdir()) == [folder]


def test_an_archive_that_has_changed_is_unpacked_again(tmp_path: Path) -> None:
    path = packed(tmp_path / "model.tar.gz", member("first"))
    first = file_utils.load_archive_file(str(path))
    second = file_utils.load_archive_file(str(packed(path, member("second"), member("third"))))
    assert first != second
    assert {each.name for each in Path(second).iterdir()} == {"second", "third"}


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("model/../../../outside")],
        [member("link", tarfile.SYMTYPE, "/"), member("link/tmp/outside")],
        [member("link", tarfile.SYMTYPE, "../.."), member("link/outside")],
        [member("link", tarfile.LNKTYPE, "../../model.tar.gz")],
        [member("pipe", tarfile.FIFOTYPE)],
        [member("link", tarfile.SYMTYPE, "model.pt")],
    ],
)
def test_nothing_is_written_outside(members: list[tarfile.TarInfo], tmp_path: Path, cache: Path) -> None:
    path = packed(tmp_path / "model.tar.gz", member("model.pt"), *members)
    before = path.read_bytes()
    refused = r"model\.tar\.gz: needs an archive .* got a member that could lead out of it .* Nothing of it was kept"
    with pytest.raises(ValueError, match=refused):
        file_utils.load_archive_file(str(path))
    assert path.read_bytes() == before
    assert [each for each in tmp_path.rglob("*") if each not in (path, cache, cache.parent)] == []


LARGE = {
    "a large member": [member("zeros", size=2**18)],
    "many members": [member(str(number)) for number in range(20)],
    "a long note": [member("model.pt", note="x" * 2**18)],
}


@pytest.mark.parametrize("name", LARGE)
def test_an_archive_that_is_far_larger_when_unpacked_is_refused(
    name: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "FEW", 2**16)
    monkeypatch.setattr(archives, "MEMBERS", 10)
    path = packed(tmp_path / "model.tar.gz", *LARGE[name])
    assert path.stat().st_size < 2000
    with pytest.raises(ValueError, match=r"got one that is far larger when unpacked \(more than 6\d,\d+ bytes"):
        file_utils.load_archive_file(str(path))
    assert list(cache.iterdir()) == []


def test_an_absolute_name_stays_inside(tmp_path: Path, cache: Path) -> None:
    outside = tmp_path / "outside"
    folder = Path(file_utils.load_archive_file(str(packed(tmp_path / "model.tar.gz", member(str(outside))))))
    assert not outside.exists()
    assert folder.is_relative_to(cache)
    assert [each.name for each in folder.rglob("outside")] == ["outside"]


@pytest.mark.parametrize("content", [b"", b"no archive", None])
def test_what_is_no_whole_archive_is_refused(content: bytes | None, tmp_path: Path, cache: Path) -> None:
    path = packed(tmp_path / "model.tar.gz", *(member(f"{number}.pt") for number in range(9)))
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: needs an archive .* got one that is none"):
        file_utils.load_archive_file(str(path))
    assert list(cache.iterdir()) == []
    assert path.exists()


def test_an_older_python_is_told_to_unpack_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "model.tar.gz", member("model.pt"))
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(ValueError, match=r"model\.tar\.gz: needs Python 3\.11\.4 or newer .* Use tar"):
        file_utils.load_archive_file(str(path))


def test_a_downloaded_archive_gives_way_to_its_folder(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(parents=True)
    downloaded = packed(cache / "0123abcd", member("model/model.pt"))
    monkeypatch.setattr(file_utils, "get_from_cache", lambda address, folder: str(downloaded))
    for _ in range(2):
        folder = Path(file_utils.load_archive_file("https://example.com/model.tar.gz"))
        assert folder == downloaded
        assert [each.name for each in folder.iterdir()] == ["model.pt"]
    assert list(cache.iterdir()) == [downloaded]


def test_a_folder_is_itself_and_a_wrong_name_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert file_utils.load_archive_file(str(tmp_path)) == str(tmp_path)
    with caplog.at_level(logging.INFO):
        assert file_utils.load_archive_file(str(tmp_path / "missing")) is None
    assert "couldn't find any file" in caplog.text
