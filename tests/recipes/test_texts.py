"""The programs that turn the files of monolingual corpora into text: what they make, leave out, and refuse."""

import gzip
import io
import random
import re
import tarfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import bbc_text
import imdb_text
import pytest
from made_up import write_reviews, write_stories, write_text8

from .shell import SHARED_DATA, assert_refused, lines, run

SPLITS = ("train", "valid", "test")


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
def test_folders_that_are_no_corpus(name: str, write: Callable[[Path], object], message: str, tmp_path: Path) -> None:
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
