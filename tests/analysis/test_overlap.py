"""Shared subwords: of encoded text, of a folder of fairseq-preprocess, and what is refused."""

import os
from pathlib import Path

import pytest
from fairseq.data import Dictionary, indexed_dataset

from fairseq_tiedemb.analysis.overlap import describe, languages_of

from ..conftest import Cli
from ..vectors import common


def command(*args: object) -> int:
    return common.command("overlap", *args)


def test_the_papers_table() -> None:
    source, target = set(range(87_000)), set(range(2_000, 94_000))
    lines = describe(source, target, ("EN", "FR"))
    assert [line.split() for line in lines[1:5]] == [
        ["only", "in", "EN", "2,000", "2.1%"],
        ["only", "in", "FR", "7,000", "7.4%"],
        ["in", "both", "85,000", "90.4%"],
        ["all", "94,000", "100.0%"],
    ]
    assert len({*map(len, lines[:5])}) == 1  # numbers are aligned at the right
    assert lines[5] == "97.7% of the types of EN are shared, 92.4% of FR's"


def test_text(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "a").write_text("the@@ re is\nis the@@ m\n", encoding="utf-8-sig")
    (tmp_path / "b").write_text("re the is\n\nder to\n")
    found = [line.split()[-2] for line in cli("overlap", tmp_path / "a", tmp_path / "b").out.splitlines()[1:5]]
    assert found == ["2", "3", "2", "7"]  # the@@ m | the der to | re is


def test_preprocessed_text_and_not_its_dictionary(tmp_path: Path, cli: Cli) -> None:
    words = Dictionary()
    (tmp_path / "bin").mkdir()
    for language, text in (("de", "a b c rare\nonly"), ("en", "b c d e\nb c")):  # "only" is <unk>
        builder = indexed_dataset.make_builder(str(tmp_path / f"bin/train.de-en.{language}.bin"), "mmap", 20)
        for line in text.split("\n"):
            builder.add_item(words.encode_line(line, add_if_not_exist=line != "only", consumer=None).long())
        builder.finalize(str(tmp_path / f"bin/train.de-en.{language}.idx"))
    for language in ("de", "en"):  # one for both
        words.save(str(tmp_path / f"bin/dict.{language}.txt"))
    printed = [line.split() for line in cli("overlap", tmp_path / "bin").out.splitlines()]
    assert printed[1][2:4] == ["de", "2"]  # a rare
    assert printed[2][2:4] == ["en", "2"]
    assert printed[3][2] == "2"
    (tmp_path / "bin/train.de-fr.de.bin").touch()
    with pytest.raises(ValueError, match=r"TEXT: needs the training text of one pair .* got de-en, de-fr in"):
        command(tmp_path / "bin")
    (tmp_path / "bin/train.de-fr.de.bin").unlink()
    dictionary = (tmp_path / "bin/dict.en.txt").read_text()
    (tmp_path / "bin/dict.en.txt").write_text("a 1\n")
    with pytest.raises(ValueError, match=r"train.de-en.en: needs word indices below \d, the size of dict.txt; got \d+"):
        command(tmp_path / "bin")
    (tmp_path / "bin/dict.en.txt").write_text(dictionary)
    (tmp_path / "bin/train.de-en.en.bin").unlink()
    with pytest.raises(ValueError, match=r"TEXT: needs a text .* got .*bin/train.de-en.en, without .bin or .idx"):
        command(tmp_path / "bin")
    os.truncate(tmp_path / "bin/train.de-en.en.idx", 30)
    with pytest.raises(ValueError, match=r"train.de-en.en.idx: needs to be as fairseq-preprocess wrote it; got 30 b"):
        command(tmp_path / "bin")
    (tmp_path / "bin/dict.de.txt").unlink()
    with pytest.raises(ValueError, match=r"TEXT: needs a file; got .*bin/dict.de.txt, which is none"):
        command(tmp_path / "bin")


def test_languages_with_a_hyphen(tmp_path: Path) -> None:
    for pair, names in {"zh-CN-en": ("zh-CN", "en"), "en-zh-CN": ("en", "zh-CN"), "de-en": ("de", "en")}.items():
        (tmp_path / pair).mkdir()
        for name in names:
            (tmp_path / pair / f"train.{pair}.{name}.bin").touch()
        assert languages_of(tmp_path / pair) == names


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\n")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "latin").write_bytes(b"\xe4\n")
    for texts, message in (
        (["a"], "TEXT: needs two files, or one folder; got 1, .*a. Use two"),
        (["a", "a", "a"], "TEXT: needs two files, or one folder; got 3"),
        (["a", "none"], "TEXT: needs a text file; got .*none"),
        (["latin", "a"], "TEXT: needs UTF-8 text; got .*latin"),
        (["empty", "a"], "TEXT: needs at least one word per side; got none on the source side"),
        (["a", "empty"], "TEXT: needs at least one word per side; got none on the target side"),
        (["."], "TEXT: needs the training text of one pair .* got none in"),
    ):
        with pytest.raises(ValueError, match=message):
            command(*(tmp_path / text for text in texts))
