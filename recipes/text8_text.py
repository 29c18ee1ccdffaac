"""text8 as text for language models: train, valid and test, with one line each.

    python recipes/text8_text.py text8.zip FOLDER [--characters COUNT]

text8 (Mahoney 2006) is 100 million characters of Wikipedia in one line, words of a-z alone. As usual, the first 90% of
the characters are for training, the next 5% for validation and the last 5% for the test, cut between words. Words with
fewer than 10 occurrences in train become <unk>.
"""

import argparse
import sys
import zipfile
from collections import Counter
from pathlib import Path

from unpack import read_text

PARTS = {"train": 90, "valid": 5, "test": 5}  # percent of the characters
MINIMUM = 10  # occurrences of a word in train


def read(path: Path, characters: int | None) -> str:
    """Returns the text, or the only file of a zip archive, up to the word end after `characters`.

    Raises:
        ValueError: if the archive has no text8, or the text has other characters than a-z and spaces.
    """
    text = read_text(path, "text8".__eq__).decode("ascii").rstrip("\n")
    others = set(text) - set("abcdefghijklmnopqrstuvwxyz ")
    if others:
        raise ValueError(f"{path}: needs one line of a-z and spaces; got {sorted(others)[0]!r}. Use text8.")
    end = -1 if characters is None else text.find(" ", characters)
    return text if end < 0 else text[:end]


def split(text: str) -> dict[str, list[str]]:
    """Returns the words of train, valid and test."""
    words, end, begin = {}, 0, 0
    for name, percent in PARTS.items():
        end += percent
        cut = text.find(" ", len(text) * end // 100)
        cut = len(text) if cut < 0 or end == 100 else cut
        words[name] = text[begin:cut].split()
        begin = cut
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="text8, or text8.zip")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets train.txt, valid.txt and test.txt")
    parser.add_argument("--characters", type=int, metavar="COUNT", help="from the first (default: all)")
    arguments = parser.parse_args()
    try:
        words = split(read(arguments.file, arguments.characters))
        if not all(words.values()):
            raise ValueError(f"{arguments.file}: needs words for three sets; got too few characters. Use text8.")
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        sys.exit(f"text8_text.py: {error}")
    counts = Counter(words["train"])
    for name, line in words.items():
        text = " ".join(word if counts[word] >= MINIMUM else "<unk>" for word in line)
        (arguments.folder / f"{name}.txt").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
