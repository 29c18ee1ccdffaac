"""The BBC news archive as text for language models: one sentence per line, split into train, valid and test.

    python recipes/bbc_text.py bbc FOLDER

Press & Wolf (2016, table 7) process and split the archive themselves, with the vocabulary of Miyamoto & Cho (2016);
neither is published. This script follows the PTB text of their other tables:

- A repeated story is left out (157 of 2,225: the same text in two topics, or slightly edited), since it could be in
  both training and test set. Two stories are the same if the first 200 letters after their titles are.
- The stories are shuffled with a fixed seed; 5% are for validation, 5% for the test, 90% for training. The sentences of
  a story stay in order, since a language model's state is carried across sentences. A title is a sentence.
- Sentences end at . ! ? before a capital, a digit, a currency sign or a quotation mark.
- Text is in lower case; numbers become N, also inside words (25-year-old is N-year-old, £11bn is £ Nbn).
- Tokens: words with their hyphens; n't, 's, 're, ... split off; every other sign by itself. Punctuation is kept.
- The 9,998 most frequent words of the training set are kept (ties in alphabetical order); others become <unk>. With
  <unk> and the end of the sentence that makes 10,000 types, as in PTB.
"""

import argparse
import random
import re
import sys
from collections import Counter
from pathlib import Path

SEED = 1
HELD_OUT = 0.05  # the fraction of the stories in valid, and in test
WORDS = 9_998
SAME = 200  # letters after the title

# Starts at the first of several marks that does not end an abbreviation. Possessive: no backtracking over long runs.
SENTENCE_END = re.compile(
    r"((?:(?<![.!?])(?<!\b[A-Z])|(?<=\b[A-Z][.!?]))[.!?]++[\"')\]]*+)\s++(?=[\"'(\[]*+[A-Z0-9£$])"
)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
TOKEN = re.compile(
    r"n't\b|'(?:s|re|ve|ll|d|m)\b|o'[^\W_]+|[^\W_]+?(?=n't\b)|[^\W_]+(?:-[^\W_]+)*|\.\.\.|[^\w\s]|_",
)


def read(path: Path) -> str:
    """Returns the text of a story, in UTF-8 or else Latin-1."""
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def identity(story: str) -> str:
    """Returns a key that two editions of one story share."""
    _, _, body = story.strip().partition("\n")
    return re.sub(r"\W+", "", body)[:SAME]


def sentences(story: str) -> list[list[str]]:
    """Returns the tokens of a story's sentences."""
    lines = (line.strip() for line in story.splitlines())
    texts = [text for line in lines if line for text in SENTENCE_END.sub(r"\1\n", line).split("\n")]
    return [tokens for text in texts if (tokens := TOKEN.findall(NUMBER.sub("N", text.lower())))]


def split(folder: Path) -> dict[str, list[list[str]]]:
    """Returns the sentences of train, valid and test, from a folder with one folder per topic of stories, NNN.txt.

    Raises:
        ValueError: if there are too few stories for three sets.
    """
    stories = {identity(story): story for story in map(read, sorted(folder.glob("*/*.txt")))}
    order = sorted(stories)
    random.Random(SEED).shuffle(order)
    held_out = int(HELD_OUT * len(order))
    if not held_out:
        raise ValueError(f"{folder}: needs 20 stories or more in */*.txt; got {len(order)}. Use the folder bbc.")
    parts = {"valid": order[:held_out], "test": order[held_out : 2 * held_out], "train": order[2 * held_out :]}
    return {name: [tokens for key in keys for tokens in sentences(stories[key])] for name, keys in parts.items()}


def write(sets: dict[str, list[list[str]]], folder: Path) -> None:
    """Writes the sentences of every set to FOLDER/SET.txt, in the vocabulary of train."""
    counts = Counter(token for tokens in sets["train"] for token in tokens)
    kept = {word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:WORDS]}
    for name, lines in sets.items():
        text = "".join(" ".join(token if token in kept else "<unk>" for token in tokens) + "\n" for tokens in lines)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stories", type=Path, metavar="bbc", help="the folder of the archive")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="gets train.txt, valid.txt and test.txt")
    arguments = parser.parse_args()
    try:
        sets = split(arguments.stories)
    except (OSError, ValueError) as error:
        sys.exit(f"bbc_text.py: {error}")
    write(sets, arguments.folder)


if __name__ == "__main__":
    main()
