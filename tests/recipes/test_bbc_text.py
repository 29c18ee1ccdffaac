"""Stories of the BBC as text for language models."""

import importlib.util
import random
import re
import subprocess
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .corpora import write_stories
from .shell import RECIPES, SHARED_DATA, run_python

specification: Any = importlib.util.spec_from_file_location("bbc_text", RECIPES / "bbc_text.py")
recipe: Any = importlib.util.module_from_spec(specification)
specification.loader.exec_module(recipe)


def run(stories: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_python(RECIPES / "bbc_text.py", stories, folder)


def bbc_text(stories: Path, folder: Path) -> dict[str, list[str]]:
    """The lines of each split."""
    folder.mkdir()
    process = run(stories, folder)
    assert process.returncode == 0, process.stderr
    return {split: (folder / f"{split}.txt").read_text().splitlines() for split in ("train", "valid", "test")}


def test_sentences_and_tokens(tmp_path: Path) -> None:
    lines = bbc_text(write_stories(tmp_path / "stories"), tmp_path / "text")["train"]
    name = lines[1].split()[0]
    assert lines[:5] == [
        "title of story N",
        f"{name} bought N shares at £ Nm .",
        f'" it did n\'t hurt , " said mr {name} .',
        f"a N-year-old was first in j . k . smith 's shop , and {name} agreed .",
        "it ended here ?",
    ]


def test_whole_stories_are_held_out(tmp_path: Path) -> None:
    text = bbc_text(write_stories(tmp_path / "stories"), tmp_path / "text")
    assert {split: len(lines) for split, lines in text.items()} == {"train": 180, "valid": 10, "test": 10}
    # The second line names the person whom a story is about; the training set has no word of the others.
    assert all(line.startswith("<unk> bought") for split in ("valid", "test") for line in text[split][1::5])
    assert not any("<unk>" in line for line in text["train"])


def test_the_same_text_each_time(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories")
    assert bbc_text(stories, tmp_path / "a") == bbc_text(stories, tmp_path / "b")


def test_a_story_that_comes_again_is_left_out(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories")
    once = bbc_text(stories, tmp_path / "a")
    # Under another title, in another topic.
    copy = (stories / "tech/001.txt").read_text().replace("Title", "Another title")
    (stories / "sport/999.txt").write_text(copy)
    twice = bbc_text(stories, tmp_path / "b")
    assert sum(map(len, once.values())) == sum(map(len, twice.values()))


def test_latin_1_and_utf_8(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories")
    for number, encoding in enumerate(("latin-1", "utf-8")):
        path = stories / f"tech/{number}.txt"
        path.write_bytes(f"Title\n\n{encoding} costs £3.\n".encode(encoding))
    text = [line for lines in bbc_text(stories, tmp_path / "text").values() for line in lines]
    assert [line[-11:] for line in text if "costs" in line] == ["costs £ N ."] * 2


def test_a_byte_order_mark_is_no_letter(tmp_path: Path) -> None:
    stories = write_stories(tmp_path / "stories")
    path = stories / "tech/001.txt"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert "\ufeff" not in str(bbc_text(stories, tmp_path / "text"))


# The end of a sentence, as it was found when each mark of 100,000 was tried to the last.
SLOW_SENTENCE_END = re.compile(r"((?<!\b[A-Z])[.!?]+[\"')\]]*)\s+(?=[\"'(\[]*[A-Z0-9£$])")


def test_sentences_end_where_they_did() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        text = "".join(rng.choices(".!?\"')] A1aB([", k=rng.randint(1, 14)))
        assert recipe.SENTENCE_END.sub("|", text) == SLOW_SENTENCE_END.sub("|", text)


@pytest.mark.parametrize("text", ["." * 100_000, "?!" * 50_000 + "x", "A." * 50_000, ". " * 50_000, ".\" '" * 50_000])
def test_many_marks_take_no_minutes(text: str) -> None:
    begin = time.process_time()
    recipe.sentences(text)
    assert time.process_time() - begin < 5


def test_too_few_stories(tmp_path: Path) -> None:
    process = run(write_stories(tmp_path / "stories", count=19), tmp_path)
    assert process.returncode == 1
    assert f"{tmp_path}/stories: needs 20 stories or more in */*.txt; got 19." in process.stderr
    assert not list(tmp_path.glob("*.txt"))


def test_the_real_archive(tmp_path: Path) -> None:
    path = SHARED_DATA / "archives/bbc-fulltext.zip"
    if not path.exists():
        pytest.skip(f"the archive is not at {path}")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    text = bbc_text(tmp_path / "bbc", tmp_path / "text")
    tokens = {split: sum(len(line.split()) + 1 for line in lines) for split, lines in text.items()}
    # What prepare-bbc.sh expects.
    assert tokens == {"train": 847_828, "valid": 56_985, "test": 42_301}
    words = Counter(word for line in text["train"] for word in line.split())
    assert len(words) == 9_999, "with the end of the sentence 10,000, as in PTB"
    assert not any(character.isdigit() for word in words for character in word)
    assert {word for line in text["test"] for word in line.split()} <= set(words)
