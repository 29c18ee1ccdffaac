"""The texts of table 7's corpora beside BBC news: IMDB reviews and text8, and the recipes that train on them."""

import hashlib
import io
import random
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from .shell import RECIPES, SHARED_DATA, command_of, dry_run, option, refusal, run_python, run_recipe

REVIEW = "{name} saw it in {number}.<br /><br />It wasn't {kind} at all! Rated {number}/10"
KINDS = ("neg", "pos", "unsup")


def write_reviews(path: Path, texts: dict[str, str]) -> Path:
    """Writes reviews, by name below aclImdb/, as the archive has them."""
    with tarfile.open(path, "w:xz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"aclImdb/{name}.txt")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def reviews(count: int = 20) -> dict[str, str]:
    """As many reviews of each kind, in either part; each has a person of its own."""
    names = [(part, kind, number) for part in ("train", "test") for kind in KINDS for number in range(count)]
    return {
        f"{part}/{kind}/{number}_7": REVIEW.format(name=f"{part}{kind}{chr(97 + number)}", number=number, kind=kind)
        for part, kind, number in names
    }


def imdb_lm_text(archive: Path, folder: Path, *words: object) -> dict[str, list[str]]:
    """The lines of each split."""
    folder.mkdir()
    process = run_python(RECIPES / "imdb_lm_text.py", archive, folder, *words)
    assert process.returncode == 0, process.stderr
    return {split: (folder / f"{split}.txt").read_text().splitlines() for split in ("train", "valid", "test")}


def test_reviews_as_sentences(tmp_path: Path) -> None:
    archive = write_reviews(tmp_path / "x.tar.xz", reviews())
    text = imdb_lm_text(archive, tmp_path / "a", "--held-out", 5)
    assert {split: len(lines) for split, lines in text.items()} == {"train": 40 * 3, "valid": 5 * 3, "test": 5 * 3}
    name = text["train"][0].split()[0]
    kind = name[len("train") : -1]
    assert text["train"][:3] == [f"{name} saw it in N .", f"it was n't {kind} at all !", "rated N / N"]
    # Labelled reviews alone, negative and positive ones mixed; and only words of train.
    kinds = [line.split()[3] for line in text["train"][1::3]]
    assert set(kinds) == {"neg", "pos"}
    assert kinds != sorted(kinds)
    assert all(line == "<unk> saw it in N ." for split in ("valid", "test") for line in text[split][::3])


def test_the_order_of_the_archive_does_not_matter(tmp_path: Path) -> None:
    texts = reviews()
    mixed = dict(random.Random(1).sample(list(texts.items()), len(texts)))
    found = [
        imdb_lm_text(write_reviews(tmp_path / f"{name}.tar.xz", each), tmp_path / name, "--held-out", 5)
        for name, each in (("a", texts), ("b", mixed))
    ]
    assert found[0] == found[1]


def test_a_review_that_comes_again_is_in_one_set(tmp_path: Path) -> None:
    texts = reviews()
    for number in range(10):
        texts[f"test/pos/{number}_7"] = texts["train/neg/3_7"]
    texts["train/pos/4_7"] = texts["train/neg/3_7"]
    text = imdb_lm_text(write_reviews(tmp_path / "x.tar.xz", texts), tmp_path / "a", "--held-out", 15)
    assert [len(lines) for lines in text.values()] == [39 * 3, 15 * 3, 15 * 3]
    assert sum(line.startswith("trainnegd") for lines in text.values() for line in lines) == 1


def test_fewer_reviews(tmp_path: Path) -> None:
    archive = write_reviews(tmp_path / "x.tar.xz", reviews())
    few, all_ = (
        imdb_lm_text(archive, tmp_path / str(count), "--held-out", 5, "--reviews", count) for count in (10, 40)
    )
    assert few["train"] == all_["train"][:30]
    assert few["test"] == all_["test"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--held-out", 21], r"--held-out: needs 1 to 20, half of test/neg and test/pos; got 21\."),
        (["--held-out", 0], r"--held-out: needs 1 to 20, .* got 0\."),
        (["--held-out", 5, "--reviews", 41], r"--reviews: needs 1 to the 40 of train/neg and train/pos; got 41\."),
    ],
)
def test_refused_numbers_of_reviews(words: list[object], message: str, tmp_path: Path) -> None:
    process = run_python(RECIPES / "imdb_lm_text.py", write_reviews(tmp_path / "x.tar.xz", reviews()), tmp_path, *words)
    assert process.returncode == 1
    assert re.search(message, process.stderr)
    assert not list(tmp_path.glob("*.txt"))


def test_refused_archive(tmp_path: Path) -> None:
    path = write_reviews(tmp_path / "x.tar.xz", reviews())
    path.write_bytes(path.read_bytes()[:-200])
    process = run_python(RECIPES / "imdb_lm_text.py", path, tmp_path)
    assert process.returncode == 1
    assert f"imdb_lm_text.py: {path}: needs a whole tar archive of reviews; got " in process.stderr
    assert not list(tmp_path.glob("*.txt"))


def test_reviews_are_a_corpus_and_a_row_of_their_own(tmp_path: Path) -> None:
    commands = dry_run("train-table7-imdb-small.sh", "pr", RUNS=tmp_path, FROM="/a.tar.xz", REVIEWS=6250)
    text = next(words for words in commands if words[0] == "python" and words[1].endswith("imdb_lm_text.py"))
    assert option(text, "--reviews") == "6250"
    assert option(command_of(commands, "fairseq-train"), "--save-dir") == f"{tmp_path}/imdb-lm-6250/pr-1"


@pytest.mark.parametrize("reviews", ["some", "0", "../all"])
def test_refused_number_of_reviews(reviews: str, tmp_path: Path) -> None:
    process = run_recipe("train-table7-imdb-small.sh", "wt", DRY_RUN=1, RUNS=tmp_path, REVIEWS=reviews)
    assert process.returncode == 1
    assert f"prepare-imdb-lm.sh: REVIEWS: needs a positive number; got {reviews}." in process.stderr
    assert "rm -rf" not in process.stdout


@pytest.mark.parametrize("script", ["prepare-imdb-lm.sh", "prepare-text8.sh"])
def test_refused_counts(script: str, tmp_path: Path) -> None:
    assert "COUNTS: needs tokens of train, valid and test, and types; got 1 2." in refusal(
        script, RUNS=tmp_path, COUNTS="1 2"
    )


def write_text8(path: Path, count: int = 4000) -> list[str]:
    """Writes a text of 80 words, the first ones more often, and returns its words."""
    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(80)]
    words = rng.choices(names, weights=[1 / (1 + number) for number in range(80)], k=count)
    text = f" {' '.join(words)}"
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("text8", text)
    else:
        path.write_text(text)
    return words


@pytest.mark.parametrize("name", ["text8", "text8.zip"])
def test_text8(name: str, tmp_path: Path) -> None:
    words = write_text8(tmp_path / name)
    process = run_python(RECIPES / "text8_text.py", tmp_path / name, tmp_path)
    assert process.returncode == 0, process.stderr
    parts = {split: (tmp_path / f"{split}.txt").read_text() for split in ("train", "valid", "test")}
    assert all(text.count("\n") == 1 for text in parts.values())
    found = [word for text in parts.values() for word in text.split()]
    assert len(found) == len(words), "none is left out, and none is cut"
    # All words have five letters and a space: shares of characters are shares of words.
    assert [len(text.split()) for text in parts.values()] == [3600, 200, 200]
    often = {word for word in words if words[:3600].count(word) >= 10}
    assert found == [word if word in often else "<unk>" for word in words]
    assert "<unk>" in parts["train"]


@pytest.mark.parametrize(("characters", "count"), [(2999, 500), (23_998, 4000)])
def test_text8_of_some_characters(characters: int, count: int, tmp_path: Path) -> None:
    words = write_text8(tmp_path / "text8")
    process = run_python(RECIPES / "text8_text.py", tmp_path / "text8", tmp_path, "--characters", characters)
    assert process.returncode == 0, process.stderr
    found = [word for split in ("train", "valid", "test") for word in (tmp_path / f"{split}.txt").read_text().split()]
    assert len(found) == count
    last = words[count - 1]  # cut, it would be unknown
    assert found[-1] == (last if words[: count * 9 // 10].count(last) >= 10 else "<unk>")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b C d", "needs one line of a-z and spaces; got 'C'. Use text8."),
        ("a", "needs words for three sets; got too few characters."),
    ],
)
def test_refused_text8(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "text8").write_text(text)
    process = run_python(RECIPES / "text8_text.py", tmp_path / "text8", tmp_path)
    assert process.returncode == 1
    assert f"text8_text.py: {tmp_path}/text8: {message}" in process.stderr
    assert not list(tmp_path.glob("*.txt"))


def test_text8_refuses_another_archive(tmp_path: Path) -> None:
    write_text8(tmp_path / "text8.zip")
    process = run_recipe("prepare-text8.sh", FROM=tmp_path / "text8.zip", RUNS=tmp_path / "runs")
    assert process.returncode == 1
    found = hashlib.sha256((tmp_path / "text8.zip").read_bytes()).hexdigest()
    assert re.search(rf"text8.zip: needs the SHA-256 a6640522afe8\w+; got {found}\.", process.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["imdb", "text8"])
def test_whole_recipe(name: str, tmp_path: Path) -> None:
    if name == "imdb":
        source = SHARED_DATA / "archives/aclImdb.tar.xz"
        if not source.exists():
            pytest.skip(f"the reviews are not at {source}")
    else:
        write_text8(source := tmp_path / "text8", count=6000)
    variables = {"FROM": source, "RUNS": tmp_path / "runs", "SMOKE": 1, "GPUS": 0}
    script = f"train-table7-{name}-small.sh"
    process = run_recipe(script, "wt-pr", **variables)
    assert process.returncode == 0, process.stderr
    assert len(re.findall(r"Perplexity: ([\d.]+)", process.stdout)) == 3
    again = run_recipe(script, "wt-pr", **variables)
    assert "Loaded checkpoint" in again.stdout
    assert "begin training epoch" not in again.stdout


@pytest.mark.slow
def test_the_real_reviews(tmp_path: Path) -> None:
    source = SHARED_DATA / "archives/aclImdb.tar.xz"
    if not source.exists():
        pytest.skip(f"the reviews are not at {source}")
    text = imdb_lm_text(source, tmp_path / "text")
    tokens = {split: sum(len(line.split()) + 1 for line in lines) for split, lines in text.items()}
    # What prepare-imdb-lm.sh expects.
    assert tokens == {"train": 7_035_223, "valid": 265_847, "test": 286_397}
    assert len({word for line in text["train"] for word in line.split()} - {"<unk>"}) == 9_998
