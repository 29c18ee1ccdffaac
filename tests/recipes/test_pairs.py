"""The programs that turn pairs of sentences into text, leave some out, and cut them into pieces."""

import gzip
import tarfile
import zipfile
from pathlib import Path

import pytest
from made_up import sentence_pairs, write_iwslt, write_tatoeba

from .shell import assert_refused, lines, run

SPLITS = ("train", "valid", "test")


def test_no_sentence_of_tatoeba_is_in_two_sets(tmp_path: Path) -> None:
    pairs = sentence_pairs(60)
    # A second translation of each English sentence, and for each German one an English one in capitals.
    pairs += [(f"{german} Ja.", english) for german, english in pairs] + [
        (german.upper(), f"{english} Yes.") for german, english in pairs
    ]
    sets = lines("tatoeba_text.py", write_tatoeba(tmp_path / "deu.tsv", pairs), tmp_path / "out", "--held-out", 15)
    assert [len(sets[f"{name}.en"]) for name in ("valid", "test")] == [15, 15]
    for language in ("de", "en"):
        train, valid, test = ({line.lower() for line in sets[f"{name}.{language}"]} for name in SPLITS)
        assert train.isdisjoint(valid | test)
        assert valid.isdisjoint(test)
    kept = {pair for name in SPLITS for pair in zip(sets[f"{name}.de"], sets[f"{name}.en"], strict=True)}
    assert kept < set(pairs)
    # What is left out shares a sentence with a held-out pair.
    held_out = {line.lower() for name in ("valid", "test") for side in ("de", "en") for line in sets[f"{name}.{side}"]}
    assert all({german.lower(), english.lower()} & held_out for german, english in set(pairs) - kept)


def test_tatoeba_is_split_alike_in_any_format_and_order(tmp_path: Path) -> None:
    pairs = sorted(sentence_pairs(300), key=lambda pair: len(pair[1]))

    def split(name: str, pairs: list[tuple[str, str]], mark: bytes = b"") -> dict[str, list[str]]:
        path = write_tatoeba(tmp_path / name, pairs)
        path.write_bytes(mark + path.read_bytes())
        return lines("tatoeba_text.py", path, tmp_path / "out", "--held-out", 50)

    text = split("deu.tsv", pairs)
    assert split("deu.tsv.gz", [*pairs, pairs[0]]) == text
    assert split("deu.tsv", pairs, b"\xef\xbb\xbf") == text, "a byte order mark is no letter"
    reverse = split("deu.zip", pairs[::-1])
    assert {name: sorted(part) for name, part in reverse.items()} == {name: sorted(text[name]) for name in text}
    assert reverse["test.de"] == text["test.de"]
    places = [index for index, (_, english) in enumerate(pairs) if english in text["test.en"]]
    assert min(places) < 50, "held-out sentences are of all lengths"
    assert max(places) > 250


DAMAGED = bytearray(gzip.compress(b"Hi.\tHallo!\n" * 99, mtime=0))
DAMAGED[12] ^= 0xFF


@pytest.mark.parametrize(
    ("name", "content", "held_out", "message"),
    [
        ("deu.tsv", b"Hi.\tHallo!\nHi.\n", 20, "deu.tsv: line 2: needs English TAB translation; got 'Hi.'"),
        ("deu.tsv", b"Hi.\t \n", 20, "line 1: needs English TAB translation; got 'Hi.\\t '"),
        ("deu.tsv", b"Hi.\tHallo!\n", 20, "--held-out: needs 60 English sentences or more; got 1. Use fewer"),
        ("deu.tsv", b"Hi.\tHallo!\n", 0, "--held-out: needs a positive whole number; got 0. Use 1000, say."),
        ("deu.tsv.gz", gzip.compress(b"Hi.\tHallo!\n" * 9, mtime=0)[:-9], 20, "deu.tsv.gz: Compressed file ended"),
        ("deu.tsv.gz", bytes(DAMAGED), 20, "tatoeba_text.py: "),
        ("missing.tsv", None, 20, "No such file"),
        ("x.zip", None, 20, "needs one text; got ['deu.txt', 'spa.txt']. Use the text itself."),
    ],
)
def test_refused_tatoeba(name: str, content: bytes | None, held_out: int, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    elif name == "x.zip":
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("deu.txt", "Hi.\tHallo!\n")
            archive.writestr("spa.txt", "Hi.\tHola.\n")
    process = run("tatoeba_text.py", tmp_path / name, "de", tmp_path, "--held-out", held_out)
    assert_refused(process, message, tmp_path)


@pytest.fixture
def iwslt(tmp_path: Path) -> Path:
    """The folder of an archive of German and English."""
    with tarfile.open(write_iwslt(tmp_path, "de", sentence_pairs(229))) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "de-en"


def test_iwslt(iwslt: Path, tmp_path: Path) -> None:
    path = iwslt / "IWSLT14.TED.dev2010.de-en.en.xml"
    path.write_text(path.read_text().replace(" </seg>", " It’s </seg>", 1))
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
        assert dev[1:] == [pair[number] for pair in sentence_pairs(20, seed=2)][1:]
    assert dev[0].endswith(" It's")


@pytest.mark.parametrize("name", ["train.tags.de-en.en", "IWSLT14.TED.tst2011.de-en.en.xml", None])
def test_iwslt_with_a_sentence_or_file_missing(name: str | None, iwslt: Path, tmp_path: Path) -> None:
    path = iwslt / (name or "train.tags.de-en.de")
    if name:
        text = path.read_text().splitlines()
        path.write_text("".join(f"{line}\n" for line in [*text[:12], *text[13:]]))
    else:
        path.unlink()
    process = run("iwslt_text.py", iwslt, "de-en", tmp_path)
    assert process.returncode == 1
    assert ("needs as many sentences in" if name else "train.tags.de-en.de") in process.stderr
    assert not list(tmp_path.glob("*.en"))


def write_pair(folder: Path, *pairs: tuple[str, str]) -> Path:
    for number, language in enumerate(("de", "en")):
        (folder / f"in.{language}").write_text("".join(f"{pair[number]}\n" for pair in pairs))
    return folder / "in"


def test_pairs_that_stay(tmp_path: Path) -> None:
    stays = [("\ufeffa", "\ufeffB"), ("a b c", "a b"), ("a b c d", "a b c d"), ("Ä\u2028x y", "a b c"), ("a\rb", "c d")]
    goes = [("", "a"), ("a", ""), ("a b c d", "a b"), ("a b c d e", "a b c d"), ("   ", "a"), ("a", "b c")]
    mixed = [pair for pairs in zip(stays, goes, strict=False) for pair in pairs] + goes[len(stays) :]
    read = write_pair(tmp_path, *mixed)
    flags = ("--longest", 4, "--ratio", 1.5)
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", *flags).returncode == 0
    kept = [(tmp_path / f"out.{language}").read_text().split("\n")[:-1] for language in ("de", "en")]
    assert list(zip(*kept, strict=True)) == [("a", "B"), *stays[1:3], ("Ä x y", "a b c"), ("a b", "c d")]
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", *flags, "--lowercase").returncode == 0
    assert (tmp_path / "out.en").read_text() == "b\na b\na b c d\na b c\nc d\n"
    for path in tmp_path.glob("out.*"):
        path.unlink()
    (tmp_path / "in.en").write_text("b\n")
    message = "needs as many lines in both languages; got 11 and 1"
    assert_refused(run("clean_pairs.py", read, tmp_path / "out", "de", "en", *flags), message, tmp_path)


def test_pieces(tmp_path: Path) -> None:
    for number, language in enumerate(("de", "en")):
        (tmp_path / language).write_text("".join(f"{pair[number]}\n" for pair in sentence_pairs(200)))
    assert run("pieces.py", "learn", tmp_path / "model", 100, tmp_path / "de", tmp_path / "en").returncode == 0
    assert run("pieces.py", "cut", tmp_path / "model", tmp_path / "de", tmp_path / "pieces").returncode == 0
    for words in (("learn", tmp_path / "m", 9, "none"), ("cut", "none", tmp_path / "de", tmp_path / "none")):
        process = run("pieces.py", *words)
        assert (process.returncode, process.stderr.splitlines()[-1][:10]) == (1, "pieces.py:")
    pieces = (tmp_path / "pieces").read_text()
    assert len(set(pieces.split())) <= 100
    assert pieces.replace(" ", "").replace("▁", " ").replace("\n ", "\n").lstrip() == (tmp_path / "de").read_text()
    vocabulary = {line.split("\t")[0] for line in (tmp_path / "model.vocab").read_text().splitlines()}
    assert not vocabulary & {"<s>", "</s>", "<pad>"}, "fairseq has these itself"
