"""The programs that turn the files of corpora into text: what they make, leave out, and refuse."""

import gzip
import io
import random
import re
import shutil
import subprocess
import tarfile
import time
import zipfile
from collections import Counter
from pathlib import Path

import bbc_text
import imdb_text
import pytest

from .corpora import (
    sentence_pairs,
    write_iwslt,
    write_reviews,
    write_stories,
    write_tatoeba,
    write_text8,
)
from .shell import RECIPES, SHARED_DATA, run_python

SPLITS = ("train", "valid", "test")
Texts = dict[str, list[str]]


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return run_python(RECIPES / script, *args)


def lines(script: str, source: Path, folder: Path, *args: object) -> Texts:
    """What a program makes of a corpus, by file name without `.txt`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = ("de",) if script == "tatoeba_text.py" else ()
    process = run(script, source, *before, folder, *args)
    assert process.returncode == 0, process.stderr
    return {path.name.removesuffix(".txt"): path.read_text().splitlines() for path in folder.iterdir()}


def assert_refused(process: subprocess.CompletedProcess[str], message: str, folder: Path) -> None:
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert not [path for path in folder.rglob("*") if path.name.startswith(("train.", "valid.", "test.", "out."))]


# --- BBC news


def test_bbc_sentences_and_tokens(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories")
    texts = {name: lines("bbc_text.py", stories, tmp_path / name) for name in "ab"}
    assert texts["a"] == texts["b"], "the same text each time"
    train = texts["a"]["train"]
    name = train[1].split()[0]
    assert train[:5] == [
        "title of story N",
        f"{name} bought N shares at £ Nm .",
        f'" it did n\'t hurt , " said mr {name} .',
        f"a N-year-old was first in j . k . smith 's shop , and {name} agreed .",
        "it ended here ?",
    ]
    assert {split: len(text) for split, text in texts["a"].items()} == {"train": 180, "valid": 10, "test": 10}
    # The second line names the person whom a story is about; the training set has no word of the others.
    assert all(line.startswith("<unk> bought") for split in ("valid", "test") for line in texts["a"][split][1::5])
    assert not any("<unk>" in line for line in train)
    # A story that comes again, under another title, in another topic, is left out.
    (stories / "sport/999.txt").write_text((stories / "tech/001.txt").read_text().replace("Title", "Another title"))
    assert sum(map(len, lines("bbc_text.py", stories, tmp_path / "c").values())) == 200


def test_bbc_encodings(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories")
    for number, encoding in enumerate(("latin-1", "utf-8", "utf-8-sig")):
        path = stories / f"tech/{number}.txt"
        path.write_bytes(f"Title\n\n{encoding} costs £3.\n".encode(encoding))
    text = [line for split in lines("bbc_text.py", stories, tmp_path / "text").values() for line in split]
    assert [line[-11:] for line in text if "costs" in line] == ["costs £ N ."] * 3
    assert "\ufeff" not in str(text)


# The end of a sentence, as it was found when each mark of 100,000 was tried to the last.
SLOW_SENTENCE_END = re.compile(r"((?<!\b[A-Z])[.!?]+[\"')\]]*)\s+(?=[\"'(\[]*[A-Z0-9£$])")


def test_sentences_end_where_they_did() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        text = "".join(rng.choices(".!?\"')] A1aB([", k=rng.randint(1, 14)))
        assert bbc_text.SENTENCE_END.sub("|", text) == SLOW_SENTENCE_END.sub("|", text)


@pytest.mark.parametrize("text", ["." * 100_000, "?!" * 50_000 + "x", "A." * 50_000, ". " * 50_000, ".\" '" * 50_000])
def test_many_marks_take_no_minutes(text: str) -> None:
    begin = time.process_time()
    bbc_text.sentences(text)
    assert time.process_time() - begin < 5


def test_the_real_bbc_news(tmp_path: Path) -> None:
    path = SHARED_DATA / "archives/bbc-fulltext.zip"
    if not path.exists():
        pytest.skip(f"the archive is not at {path}")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    text = lines("bbc_text.py", tmp_path / "bbc", tmp_path / "text")
    tokens = {split: sum(len(line.split()) + 1 for line in text[split]) for split in SPLITS}
    # What prepare-bbc.sh expects.
    assert tokens == {"train": 847_828, "valid": 56_985, "test": 42_301}
    words = Counter(word for line in text["train"] for word in line.split())
    assert len(words) == 9_999, "with the end of the sentence 10,000, as in PTB"
    assert not any(character.isdigit() for word in words for character in word)
    assert {word for line in text["test"] for word in line.split()} <= set(words)


# --- reviews, for language models and for word vectors

REVIEW = "{name} saw it in {number}.<br /><br />It wasn't {kind} at all! Rated {number}/10"


def write_archive(path: Path, texts: dict[str, str]) -> Path:
    """Writes reviews, by name below aclImdb/, as the archive has them."""
    with tarfile.open(path, "w:xz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"aclImdb/{name}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def reviews(count: int = 20) -> dict[str, str]:
    """As many reviews of each kind, in either part; each has a person of its own."""
    names = [(p, k, n) for p in ("train", "test") for k in ("neg", "pos", "unsup") for n in range(count)]
    return {
        f"{part}/{kind}/{number}_7": REVIEW.format(name=f"{part}{kind}{chr(97 + number)}", number=number, kind=kind)
        for part, kind, number in names
    }


def test_reviews_as_sentences(tmp_path: Path) -> None:
    texts = reviews()
    text = lines("imdb_lm_text.py", write_archive(tmp_path / "x.tar.xz", texts), tmp_path / "a", "--held-out", 5)
    assert {split: len(text[split]) for split in SPLITS} == {"train": 40 * 3, "valid": 5 * 3, "test": 5 * 3}
    name = text["train"][0].split()[0]
    kind = name[len("train") : -1]
    assert text["train"][:3] == [f"{name} saw it in N .", f"it was n't {kind} at all !", "rated N / N"]
    # Labelled reviews alone, negative and positive ones mixed; and only words of train.
    kinds = [line.split()[3] for line in text["train"][1::3]]
    assert set(kinds) == {"neg", "pos"}
    assert kinds != sorted(kinds)
    assert all(line == "<unk> saw it in N ." for split in ("valid", "test") for line in text[split][::3])
    # Whatever the order of the archive; and fewer are the first ones.
    mixed = write_archive(tmp_path / "y.tar.xz", dict(random.Random(1).sample(list(texts.items()), len(texts))))
    assert lines("imdb_lm_text.py", mixed, tmp_path / "b", "--held-out", 5) == text
    few = lines("imdb_lm_text.py", mixed, tmp_path / "c", "--held-out", 5, "--reviews", 10)
    assert (few["train"], few["test"]) == (text["train"][:30], text["test"])


def test_a_review_that_comes_again_is_in_one_set(tmp_path: Path) -> None:
    texts = reviews()
    for number in range(10):
        texts[f"test/pos/{number}_7"] = texts["train/neg/3_7"]
    texts["train/pos/4_7"] = texts["train/neg/3_7"]
    text = lines("imdb_lm_text.py", write_archive(tmp_path / "x.tar.xz", texts), tmp_path / "a", "--held-out", 15)
    assert [len(text[split]) for split in SPLITS] == [39 * 3, 15 * 3, 15 * 3]
    assert sum(line.startswith("trainnegd") for split in text.values() for line in split) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--held-out", 21], "--held-out: needs 1 to 20, half of test/neg and test/pos; got 21."),
        (["--held-out", 0], "--held-out: needs 1 to 20, half of test/neg and test/pos; got 0."),
        (["--held-out", 5, "--reviews", 41], "--reviews: needs 1 to the 40 of train/neg and train/pos; got 41."),
        (None, "x.tar.xz: needs a whole tar archive of reviews; got "),
    ],
)
def test_refused_reviews(words: list[object] | None, message: str, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "x.tar.xz", reviews())
    if words is None:
        path.write_bytes(path.read_bytes()[:-200])
    assert_refused(run("imdb_lm_text.py", path, tmp_path, *(words or [])), message, tmp_path)


def test_reviews_as_words(tmp_path: Path) -> None:
    text = lines("imdb_text.py", write_reviews(tmp_path / "aclImdb"), tmp_path / "text")
    assert (len(text["train"]), len(text["valid"])) == (36, 24)
    assert text["train"][0] == "it s a neg film rated caf scenes a plot of sorts"
    assert text["valid"][12] == "it s a pos film rated caf scenes a plot of sorts"


@pytest.mark.slow
def test_the_real_reviews(tmp_path: Path) -> None:
    source = SHARED_DATA / "archives/aclImdb.tar.xz"
    if not source.exists():
        pytest.skip(f"the reviews are not at {source}")
    text = lines("imdb_lm_text.py", source, tmp_path / "text")
    tokens = {split: sum(len(line.split()) + 1 for line in text[split]) for split in SPLITS}
    # What prepare-imdb-lm.sh expects.
    assert tokens == {"train": 7_035_223, "valid": 265_847, "test": 286_397}
    assert len({word for line in text["train"] for word in line.split()} - {"<unk>"}) == 9_998
    assert run("unpack.py", source, tmp_path / "all").returncode == 0
    text = lines("imdb_text.py", tmp_path / "all/aclImdb", tmp_path / "words")
    words = {split: sum(len(line.split()) for line in text[split]) for split in ("train", "valid")}
    assert words == {"train": 17_801_506, "valid": 228_304}
    assert imdb_text.VALID == 500


# --- text8


@pytest.mark.parametrize(("name", "characters", "count"), [("text8", 23_998, 4000), ("text8.zip", 2999, 500)])
def test_text8(name: str, characters: int, count: int, tmp_path: Path) -> None:
    words = write_text8(tmp_path / name)[:count]
    text = lines("text8_text.py", tmp_path / name, tmp_path / "text", "--characters", characters)
    parts = [text[split][0].split() for split in SPLITS]
    # All words have five letters and a space: shares of characters are shares of words.
    assert [len(part) for part in parts] == [count * 9 // 10, count // 20, count // 20]
    often = {word for word in words if words[: count * 9 // 10].count(word) >= 10}
    assert sum(parts, []) == [word if word in often else "<unk>" for word in words], "none is left out or cut"
    assert "<unk>" in parts[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b C d", "text8: needs one line of a-z and spaces; got 'C'. Use text8."),
        ("a", "text8: needs words for three sets; got too few characters."),
    ],
)
def test_refused_text8(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text8").write_text(text)
    assert_refused(run("text8_text.py", tmp_path / "text8", tmp_path), message, tmp_path)


# --- pairs of sentences: Tatoeba, IWSLT, WMT


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

    def split(name: str, pairs: list[tuple[str, str]], mark: bytes = b"") -> Texts:
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
        ("deu.tsv.gz", gzip.compress(b"Hi.\tHallo!\n" * 9)[:-9], 20, "deu.tsv.gz: Compressed file ended"),
        ("deu.tsv.gz", bytes(DAMAGED), 20, "tatoeba_text.py: "),
        ("missing.tsv", None, 20, "No such file"),
        ("x.zip", None, 20, "needs one text of sentence pairs; got ['deu.txt', 'spa.txt']. Use the text itself."),
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
    stays = [("\ufeffa", "\ufeffB"), ("a b c", "a b"), ("a b c d", "a b c d"), ("Ä\u2028x y", "a b c")]
    goes = [("", "a"), ("a", ""), ("a b c d", "a b"), ("a b c d e", "a b c d"), ("   ", "a"), ("a", "b c")]
    mixed = [pair for pairs in zip(stays, goes, strict=False) for pair in pairs] + goes[len(stays) :]
    read = write_pair(tmp_path, *mixed)
    flags = ("--longest", 4, "--ratio", 1.5)
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", *flags).returncode == 0
    kept = [(tmp_path / f"out.{language}").read_text().split("\n")[:-1] for language in ("de", "en")]
    assert list(zip(*kept, strict=True)) == [("a", "B"), *stays[1:3], ("Ä x y", "a b c")]
    assert run("clean_pairs.py", read, tmp_path / "out", "de", "en", *flags, "--lowercase").returncode == 0
    assert (tmp_path / "out.en").read_text() == "b\na b\na b c d\na b c\n"
    for path in tmp_path.glob("out.*"):
        path.unlink()
    (tmp_path / "in.en").write_text("b\n")
    message = "needs as many lines in both languages; got 10 and 1"
    assert_refused(run("clean_pairs.py", read, tmp_path / "out", "de", "en", *flags), message, tmp_path)


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


# --- all


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("bbc_text.py", lambda path: write_stories(path, count=19), "needs 20 stories or more in */*.txt; got 19."),
        ("imdb_text.py", Path.mkdir, "/train/neg: needs reviews, *.txt; got none"),
        ("imdb_text.py", lambda path: (path / "train/neg/x.txt").mkdir(parents=True), "imdb_text.py: "),
        ("bbc_text.py", lambda path: (path / "tech/x.txt").mkdir(parents=True), "bbc_text.py: "),
        ("imdb_lm_text.py", Path.mkdir, "imdb_lm_text.py: "),
        ("imdb_lm_text.py", lambda path: path.symlink_to("nowhere"), "imdb_lm_text.py: "),
    ],
)
def test_folders_that_are_no_corpus(name: str, write, message: str, tmp_path: Path) -> None:
    write(tmp_path / "texts")
    process = run(name, tmp_path / "texts", tmp_path)
    assert_refused(process, message, tmp_path)
    assert f"{tmp_path}/texts" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bombs"), [("text8_text.py", ["zip"]), ("tatoeba_text.py", ["zip", "gz"])])
def test_texts_that_are_bombs_are_refused(name: str, bombs: list[str], tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.gz", "wb") as file:
        for _ in range(1001):
            file.write(bytes(1_000_000))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("text8" if name == "text8_text.py" else "pairs.txt", "w", force_zip64=True) as member:
            for _ in range(1001):
                member.write(bytes(1_000_000))
    rest = (tmp_path,) if name == "text8_text.py" else ("de", tmp_path, "--held-out", 1)
    for bomb in bombs:
        process = run(name, tmp_path / f"bomb.{bomb}", *rest)
        assert_refused(process, "needs a text of at most 1,000,000,000 bytes; got more", tmp_path)
