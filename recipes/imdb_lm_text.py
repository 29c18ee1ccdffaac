"""The Large Movie Review Dataset as text for language models: one sentence per line, split into train, valid and test.

    python recipes/imdb_lm_text.py ARCHIVE FOLDER [--reviews COUNT]

Press & Wolf (2016, table 7) process and split the archive themselves, with the vocabulary of Miyamoto & Cho (2016);
neither is published. This script follows the BBC news of the same table (bbc_text.py):

- Training is on the labelled reviews of train/neg and train/pos, or on the first COUNT of them; validation and test are
  on 1,000 reviews each of test/neg and test/pos, which are of other films. Unlabelled reviews are left out.
- A repeated review is left out, so that no text is in two sets.
- The reviews of a part are shuffled with a fixed seed, since file names sort by sentiment and film. The sentences of a
  review stay in order.
- A <br /> ends a line and a sentence; sentences, numbers and tokens are those of bbc_text.py.
- The 9,998 most frequent words of the training set are kept (ties in alphabetical order); others become <unk>.
"""

import argparse
import random
import re
import sys
import tarfile
from pathlib import Path

from bbc_text import SEED, sentences, write
from unpack import DAMAGE, LIMIT, TEXT_LIMIT, BoundedHeader, tar_members

HELD_OUT = 1_000  # reviews in valid, and in test
REVIEW = re.compile(r"(?:^|/)(train|test)/(?:neg|pos)/[^/]+\.txt$")
LINE_END = re.compile(r"<br\s*/?>", re.IGNORECASE)


def labelled(archive: Path) -> dict[str, list[str]]:
    """Returns the different labelled reviews of train and test, in a reproducible order.

    They are read from the archive, since writing and removing 100,000 files takes longer than all other work.

    Raises:
        ValueError: if the archive is damaged, or not a tar archive.
    """
    texts: dict[str, dict[str, str]] = {"train": {}, "test": {}}
    size = 0
    try:
        with tarfile.open(archive, tarinfo=BoundedHeader) as file:
            for member in tar_members(file, LIMIT):
                match = REVIEW.search(member.name)
                if match and member.kind == "file":
                    size += member.size
                    if size > TEXT_LIMIT:
                        raise tarfile.ReadError(f"more than {TEXT_LIMIT:,} bytes of reviews")
                    texts[match[1]][member.name] = member.open().read().decode().strip()
    except (*DAMAGE, UnicodeDecodeError) as error:
        raise ValueError(f"{archive}: needs a whole tar archive of reviews; got {error}. Use aclImdb's.") from None
    # Sorted by name: the order in archives differs.
    once = {name: list(dict.fromkeys(text for _, text in sorted(named.items()))) for name, named in texts.items()}
    for reviews in once.values():
        random.Random(SEED).shuffle(reviews)
    return once


def split(archive: Path, *, reviews: int | None = None, held_out: int = HELD_OUT) -> dict[str, list[list[str]]]:
    """Returns the sentences of train, valid and test.

    Args:
        archive: a tar file of aclImdb/{train,test}/{neg,pos}/N_R.txt, one review per file.
        reviews: number of training reviews; None for all.
        held_out: number of reviews in valid, and in test.

    Raises:
        ValueError: if there are fewer reviews, or the archive is damaged.
    """
    texts = labelled(archive)
    train, known = texts["train"], set(texts["train"])
    others = [text for text in texts["test"] if text not in known]
    reviews = len(train) if reviews is None else reviews
    if not 0 < reviews <= len(train):
        raise ValueError(f"--reviews: needs 1 to the {len(train)} of train/neg and train/pos; got {reviews}.")
    if not 0 < held_out <= len(others) // 2:
        raise ValueError(f"--held-out: needs 1 to {len(others) // 2}, half of test/neg and test/pos; got {held_out}.")
    parts = {"train": train[:reviews], "valid": others[:held_out], "test": others[held_out : 2 * held_out]}
    return {name: [each for text in part for each in of_review(text)] for name, part in parts.items()}


def of_review(text: str) -> list[list[str]]:
    """Returns the tokens of a review's sentences; equal tokens are one object, since there are millions of tokens."""
    return [list(map(sys.intern, tokens)) for tokens in sentences(LINE_END.sub("\n", text))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="aclImdb_v1.tar.gz, or another tar of it")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets train.txt, valid.txt and test.txt")
    parser.add_argument("--reviews", type=int, metavar="COUNT", help="to train on (default: all)")
    parser.add_argument(
        "--held-out", type=int, metavar="COUNT", default=HELD_OUT, help="in valid, and in test (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        sets = split(arguments.archive, reviews=arguments.reviews, held_out=arguments.held_out)
    except (OSError, ValueError) as error:
        sys.exit(f"imdb_lm_text.py: {error}")
    write(sets, arguments.folder)


if __name__ == "__main__":
    main()
