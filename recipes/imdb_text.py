"""The Large Movie Review Dataset as text for word embeddings: one review per line, words of a-z alone.

    python recipes/imdb_text.py aclImdb FOLDER

Training uses the reviews of train/neg, train/pos and train/unsup; validation the first 500 of test/neg and of test/pos,
in the order of file names. <br /> is removed, text is in lower case, and all characters but a-z separate words, as in
text8, the corpus of Press & Wolf's table 2.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

VALID = 500  # reviews of test/neg, and of test/pos
LINE_END = re.compile(r"<br\s*/>")
NO_LETTERS = re.compile(r"[^a-z]+")


def reviews(folder: Path, count: int | None = None) -> Iterator[str]:
    """Yields the words of the reviews (files N_R.txt) of a folder, or of its first `count` reviews.

    Raises:
        ValueError: if there are no reviews.
    """
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        raise ValueError(f"{folder}: needs reviews, *.txt; got none. Use the folder aclImdb of the archive.")
    for path in paths[:count]:
        text = LINE_END.sub(" ", path.read_text(encoding="utf-8")).lower()
        yield NO_LETTERS.sub(" ", text).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reviews", type=Path, metavar="aclImdb", help="the folder of the archive")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets train.txt and valid.txt")
    arguments = parser.parse_args()
    sets: dict[str, list[tuple[str, int | None]]] = {
        "train": [("train/neg", None), ("train/pos", None), ("train/unsup", None)],
        "valid": [("test/neg", VALID), ("test/pos", VALID)],
    }
    for name, parts in sets.items():
        try:
            lines = [line for part, count in parts for line in reviews(arguments.reviews / part, count)]
        except (OSError, ValueError) as error:
            sys.exit(f"imdb_text.py: {error}")
        (arguments.folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
