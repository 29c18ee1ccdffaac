"""Text files in UTF-8, fairseq's dict.txt among them, and JSON of any origin."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .dictionaries import OVERWRITE


def read_lines(path: str | Path, *, flag: str) -> Iterator[tuple[int, str]]:
    """Yields (number from 1, line) of a UTF-8 text, without its byte-order mark; ValueError names the flag and file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            yield from enumerate(file, start=1)
    except OSError as error:
        raise ValueError(f"{flag}: needs a text file; got {path} ({error.strerror}). Use another path.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{flag}: needs UTF-8 text; got {path} ({error}). Use iconv, if it is text.") from error


def read_dict(path: str | Path, *, flag: str) -> list[tuple[str, int]]:
    """Returns the words of a dict.txt and their counts, in order; fairseq's own words are not among them."""
    return parse_dict(read_lines(path, flag=flag), path, flag=flag)


DIGITS = 18  # of a count, at most


def parse_dict(lines: Iterable[tuple[int, str]], path: str | Path, *, flag: str) -> list[tuple[str, int]]:
    """Returns what ``read_dict`` does, of lines that are read."""
    entries = []
    for number, line in lines:
        word, _, count = line.rstrip().removesuffix(OVERWRITE).rpartition(" ")
        if not word or not count.isdecimal() or len(count) > DIGITS:
            needs, got = "lines `word count`", f"{line.rstrip()[:60]!r} in line {number} of {path}"
            raise ValueError(f"{flag}: needs {needs}; got {got}. Use the dict.txt that fairseq-preprocess wrote.")
        entries.append((word, int(count)))
    return entries


def parse_json(text: str | bytes) -> Any:
    """Parses JSON; raises ValueError for damaged text, too deep nesting and numbers of too many digits."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("values nested too deep") from None
