"""Tatoeba's sentence pairs of English and another language, split into train, valid and test, one sentence per line.

    python recipes/tatoeba_text.py deu-eng.tsv.gz de FOLDER --held-out 1000

reads lines `English TAB other`, possibly with more columns, from plain text, gzip, or a zip archive with one text and
notes (deu-eng.zip of manythings.org/anki), and writes FOLDER/train.de, train.en, valid.de, ..., not tokenised.

A sentence of Tatoeba often has several translations, so that a random split of pairs would test on training sentences.
Here the English sentences are ordered by SHA-256. The first are the test set, the next the validation set, with one
translation per sentence. The training set has none of these sentences, in either language and any case.
"""

import argparse
import hashlib
import sys
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from unpack import read_text

NOTES = "_about.txt"  # of ManyThings.org's archives

Pair = tuple[str, str]  # English, other


def is_text(name: str) -> bool:
    """Whether a file of an archive has the pairs."""
    return name.endswith((".txt", ".tsv")) and name != NOTES


def pairs_of(text: str) -> list[Pair]:
    """Returns the different pairs of a text.

    Raises:
        ValueError: if a line has no second column.
    """
    pairs: dict[Pair, None] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        columns = [" ".join(column.split()) for column in line.split("\t")[:2]]
        if len(columns) < 2 or not all(columns):
            raise ValueError(f"line {number}: needs English TAB translation; got {line[:60]!r}.")
        pairs[columns[0], columns[1]] = None
    return list(pairs)


def in_no_order(sentences: Iterable[str]) -> list[str]:
    """Returns sentences in a pseudo-random order, which does not change when the corpus grows."""
    return sorted(set(sentences), key=lambda sentence: hashlib.sha256(sentence.encode()).digest())


def split(pairs: list[Pair], held_out: int) -> dict[str, list[Pair]]:
    """Returns the pairs of train, valid and test, with `held_out` pairs in valid and in test.

    Raises:
        ValueError: if `held_out` is below 1, or there are too few English sentences.
    """
    if held_out < 1:
        raise ValueError(f"--held-out: needs a positive whole number; got {held_out}. Use 1000, say.")
    translations: dict[str, list[Pair]] = {}
    for pair in pairs:
        translations.setdefault(pair[0].lower(), []).append(pair)
    sets: dict[str, list[Pair]] = {"test": [], "valid": []}
    seen: set[str] = set()
    for english in in_no_order(translations):
        name = "test" if len(sets["test"]) < held_out else "valid"
        if len(sets[name]) == held_out:
            break
        pair = translations[english][0]
        # Validation and test sets share no sentence, either.
        if pair[1].lower() not in seen:
            sets[name].append(pair)
            seen |= {english, pair[1].lower()}
    train = [pair for pair in pairs if pair[0].lower() not in seen and pair[1].lower() not in seen]
    if len(sets["valid"]) < held_out or len(train) < held_out:
        raise ValueError(
            f"--held-out: needs {3 * held_out} English sentences or more; got {len(translations)}. Use fewer."
        )
    return {"train": train, **sets}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("language", metavar="LANGUAGE", help="of the second column: de, say")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--held-out", type=int, required=True, help="sentences of the validation set, and of the test set"
    )
    arguments = parser.parse_args()
    try:
        sets = split(pairs_of(read_text(arguments.file, is_text).decode("utf-8-sig")), arguments.held_out)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        sys.exit(f"tatoeba_text.py: {arguments.file}: {error}")
    for name, pairs in sets.items():
        for column, language in enumerate(("en", arguments.language)):
            text = "".join(f"{pair[column]}\n" for pair in pairs)
            (arguments.folder / f"{name}.{language}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
