"""Archives of models: a download is unpacked into fairseq's cache and nowhere else; the user's own are refused."""

import io
import re
import tarfile
from pathlib import Path

import pytest
import torch
from fairseq import file_utils

import fairseq_tiedemb.plugin  # noqa: F401  (mends fairseq)


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What fairseq has fetched from any address: a file of its cache, which does not exist yet."""
    (tmp_path / "cache").mkdir()
    path = tmp_path / "cache" / "0123abcd"
    monkeypatch.setattr(file_utils, "get_from_cache", lambda address, folder: str(path))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, 0 if link else 4
    return info


def packed(path: Path, *members: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    """An archive whose files say `text`."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info in members:
            archive.addfile(info, io.BytesIO(b"text"))
    return path


@pytest.mark.parametrize("suffix", ["gz", "bz2"])
def test_a_downloaded_archive_gives_way_to_its_folder(suffix: str, downloaded: Path) -> None:
    packed(downloaded, member("model/model.pt"), member("model/dict.txt"), mode=f"w:{suffix}")
    for _ in range(2):
        assert file_utils.load_archive_file(f"https://example.com/model.tar.{suffix}") == str(downloaded)
        found = {each.name: each.read_text() for each in downloaded.iterdir()}
        assert found == {"model.pt": "text", "dict.txt": "text"}


@pytest.mark.parametrize(
    "members",
    [
        [member("model/../../../outside")],
        [member("link", tarfile.SYMTYPE, "/"), member("link/tmp/outside")],
        [member("link", tarfile.SYMTYPE, "model.pt")],
        [member("link", tarfile.LNKTYPE, "../../model.tar.gz")],
    ],
)
def test_nothing_is_written_outside(members: list[tarfile.TarInfo], downloaded: Path, tmp_path: Path) -> None:
    packed(downloaded, member("model.pt"), *members)
    with pytest.raises(tarfile.FilterError, match="model/../../../outside|link"):
        file_utils.load_archive_file("https://example.com/model.tar.gz")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [downloaded]


def test_an_archive_of_the_user_is_refused_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "model.tar.gz", member("model.pt"))
    with pytest.raises(ValueError, match=r"model\.tar\.gz: needs the folder of a model; got a file\. Use .*tar -xf"):
        file_utils.load_archive_file(str(path))
    assert path.is_file()
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(ValueError, match="https.*: needs the folder of a model"):
        file_utils.load_archive_file("https://example.com/model.tar.gz")


def test_a_folder_is_itself_and_anything_else_is_refused(tmp_path: Path) -> None:
    assert file_utils.load_archive_file(str(tmp_path)) == str(tmp_path)
    for name in (str(tmp_path / "missing"), "m:m", "ftp://x/y"):
        with pytest.raises(ValueError, match=f"{name}: needs the folder of a model; got none"):
            file_utils.load_archive_file(name)
    torch.save({}, tmp_path / "last.pt")
    use = rf"Use {re.escape(str(tmp_path))} and checkpoint_file='last\.pt'"
    with pytest.raises(ValueError, match=rf"last\.pt: needs the folder of a model; got a file\. {use}"):
        file_utils.load_archive_file(str(tmp_path / "last.pt"))
