"""What the recipes for translation do with text: IWSLT's files, pairs that are left out, pieces."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from .corpora import sentence_pairs, write_iwslt
from .shell import RECIPES, run_python


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return run_python(RECIPES / script, *args)


@pytest.fixture
def iwslt(tmp_path: Path) -> Path:
    """The folder of an archive of German and English."""
    with tarfile.open(write_iwslt(tmp_path, "de", sentence_pairs(229))) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "de-en"


def test_iwslt_text(iwslt: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    process = run("iwslt_text.py", iwslt, "de-en", out)
    assert process.returncode == 0, process.stderr
    assert len(list(out.iterdir())) == 12
    for number, language in enumerate(("de", "en")):
        train = (out / f"train.{language}").read_text().splitlines()
        assert train[:229] == [pair[number] for pair in sentence_pairs(229)]
        assert len(train) == 230
        dev = (out / f"TED.dev2010.{language}").read_text().splitlines()
        assert dev == [pair[number] for pair in sentence_pairs(20, seed=2)]


def test_iwslt_apostrophes(iwslt: Path, tmp_path: Path) -> None:
    path = iwslt / "IWSLT14.TED.dev2010.de-en.en.xml"
    path.write_text(path.read_text().replace(" </seg>", " It’s </seg>", 1))
    assert run("iwslt_text.py", iwslt, "de-en", tmp_path).returncode == 0
    assert (tmp_path / "TED.dev2010.en").read_text().splitlines()[0].endswith(" It's")


@pytest.mark.parametrize("name", ["train.tags.de-en.en", "IWSLT14.TED.tst2011.de-en.en.xml"])
def test_iwslt_with_a_sentence_missing(name: str, iwslt: Path, tmp_path: Path) -> None:
    path = iwslt / name
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in [*lines[:12], *lines[13:]]))
    process = run("iwslt_text.py", iwslt, "de-en", tmp_path)
    assert process.returncode == 1
    assert "needs as many sentences in" in process.stderr
    assert not list(tmp_path.glob("*.en"))


def test_iwslt_without_its_files(tmp_path: Path) -> None:
    process = run("iwslt_text.py", tmp_path, "de-en", tmp_path)
    assert process.returncode == 1
    assert "train.tags.de-en.de" in process.stderr


def write_pair(folder: Path, *pairs: tuple[str, str]) -> Path:
    for number, language in enumerate(("de", "en")):
        (folder / f"in.{language}").write_text("".join(f"{pair[number]}\n" for pair in pairs))
    return folder / "in"


def test_pairs_that_stay(tmp_path: Path) -> None:
    stays = [("a", "B"), ("a b c", "a b"), ("a b c d", "a b c d"), ("Ä\u2028x y", "a b c")]
    goes = [("", "a"), ("a", ""), ("a b c d", "a b"), ("a b c d e", "a b c d"), ("   ", "a"), ("a", "b c")]
    mixed = [pair for pairs in zip(stays, goes, strict=False) for pair in pairs] + goes[len(stays) :]
    read = write_pair(tmp_path, *mixed)
    options = ("--longest", 4, "--ratio", 1.5)
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", *options).returncode == 0
    kept = [(tmp_path / f"out.{language}").read_text().split("\n")[:-1] for language in ("de", "en")]
    assert list(zip(*kept, strict=True)) == [*stays[:3], ("Ä x y", "a b c")]
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", *options, "--lowercase").returncode == 0
    assert (tmp_path / "out.en").read_text() == "b\na b\na b c d\na b c\n"


def test_a_byte_order_mark_is_no_letter(tmp_path: Path) -> None:
    read = write_pair(tmp_path, ("\ufeffa", "\ufeffb"), ("c", "d"))
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", "--longest", 4, "--ratio", 1.5).returncode == 0
    assert (tmp_path / "out.de").read_text() + (tmp_path / "out.en").read_text() == "a\nc\nb\nd\n"


def test_texts_of_different_lengths(tmp_path: Path) -> None:
    read = write_pair(tmp_path, ("a", "b"), ("a", "b"))
    (tmp_path / "in.en").write_text("b\n")
    process = run("clean_pairs.py", read, tmp_path / "out", "de", "en", "--longest", 4, "--ratio", 1.5)
    assert process.returncode == 1
    assert "needs as many lines in both languages; got 2 and 1" in process.stderr
    assert not list(tmp_path.glob("out*"))


def test_pieces(tmp_path: Path) -> None:
    for number, language in enumerate(("de", "en")):
        (tmp_path / language).write_text("".join(f"{pair[number]}\n" for pair in sentence_pairs(200)))
    assert run("pieces.py", "learn", tmp_path / "model", 100, tmp_path / "de", tmp_path / "en").returncode == 0
    assert run("pieces.py", "cut", tmp_path / "model", tmp_path / "de", tmp_path / "pieces").returncode == 0
    pieces = (tmp_path / "pieces").read_text()
    assert len(set(pieces.split())) <= 100
    assert pieces.replace(" ", "").replace("▁", " ").replace("\n ", "\n").lstrip() == (tmp_path / "de").read_text()
    vocabulary = {line.split("\t")[0] for line in (tmp_path / "model.vocab").read_text().splitlines()}
    assert not vocabulary & {"<s>", "</s>", "<pad>"}, "fairseq has these itself"
