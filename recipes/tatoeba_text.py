"""Tatoeba's sentence pairs of one language and English, split into train, valid and test, one sentence a line.

    python recipes/tatoeba_text.py deu-eng.tsv.gz de FOLDER --held-out 1000

reads lines `English TAB other`, with more columns or without, from plain text, gzip, or a zip archive that holds one
text beside its notes (deu-eng.zip of manythings.org/anki), and writes FOLDER/train.de, train.en, valid.de, ..., not
tokenised.

A sentence of Tatoeba often has several translations, so that a split by pairs would test on sentences of the training
set. Here the English sentences are put in an order that says nothing about them, by SHA-256; the first ones are the
test set, the next the validation set, each with one of its translations; and no sentence of theirs, in either language
and whatever its case, is in the training set.
"""

import argparse
import gzip
import hashlib
import sys
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from unpack import read_text

NOTES = "_about.txt"  # of ManyThings.org's archives

Pair = tuple[str, str]  # English, other


def read(path: Path) -> str:
    """The text of a file, a gzip, or the one text of a zip archive.

    Raises:
        ValueError: the archive has no text, or several, or it is too large.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith((".txt", ".tsv")) and name != NOTES]
            if len(names) != 1:
                raise ValueError(f"{path}: needs one text of sentence pairs; got {names}. Use the text itself.")
            with archive.open(names[0]) as file:
                return read_text(file, path).decode("utf-8-sig")
    with path.open("rb") as file:
        is_gzip = file.peek(2)[:2] == b"\x1f\x8b"
        return read_text(gzip.GzipFile(fileobj=file) if is_gzip else file, path).decode("utf-8-sig")


def pairs_of(text: str) -> list[Pair]:
    """The pairs, each once.

    Raises:
        ValueError: a line has no second column.
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
    """Sentences in an order that is always the same, and that a larger edition of the corpus does not change."""
    return sorted(set(sentences), key=lambda sentence: hashlib.sha256(sentence.encode()).digest())


def split(pairs: list[Pair], held_out: int) -> dict[str, list[Pair]]:
    """The pairs of train, valid and test, of which the last two have `held_out` each.

    Raises:
        ValueError: `held_out` is below 1, or there are too few English sentences for it.
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
        # Nor is a sentence of the validation set in the test set.
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
        sets = split(pairs_of(read(arguments.file)), arguments.held_out)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        sys.exit(f"tatoeba_text.py: {arguments.file}: {error}")
    for name, pairs in sets.items():
        for column, language in enumerate(("en", arguments.language)):
            text = "".join(f"{pair[column]}\n" for pair in pairs)
            (arguments.folder / f"{name}.{language}").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
