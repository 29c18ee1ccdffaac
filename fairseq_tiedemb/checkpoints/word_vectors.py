"""Word vectors as text, as word2vec and GloVe write them: ``word x_1 ... x_D`` a line."""

import re
from pathlib import Path

import numpy as np

HEADER = re.compile(r"[ \t]*\d{1,12}[ \t]+\d{1,9}\s*")
SPACE = " \t\r\n"  # and not what else Python takes for space, of which there are words


def read_word_vectors(path: Path, *, flag: str, kinds: str) -> dict[str, np.ndarray]:
    """Reads word vectors with word2vec's header ``V D``, or without one as GloVe's are.

    Returns the vector of each word, (D,) in float32, in the order of the file. Of a word that comes twice the first
    vector counts. A word may have spaces in it, as some of GloVe's.

    ValueError if a line has fewer numbers than the first or the header's, or most have more, one is not finite, there
    is none, or there are not as many words as the header has; it names the `flag`, and the `kinds` of files to use.
    """
    words: dict[str, np.ndarray] = {}
    width = announced = None
    read = too_long = 0
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and HEADER.fullmatch(line):
                    announced, width = map(int, line.split())
                    continue
                if not line.strip():
                    continue
                word, row = _parsed(line, width)
                width = len(row) if width is None else width
                if not word or len(row) != width or width == 0 or not np.isfinite(row).all():
                    since = f", as the header {announced} {width} says" if announced is not None else ""
                    needs = f"a word and {width or 'some'} finite numbers a line{since}"
                    got = f"{line[:60].rstrip()!r} in line {number} of {path}"
                    raise ValueError(f"{flag}: needs {needs}; got {got}. Use {kinds}.")
                words.setdefault(word, row)
                too_long += " " in word and len(_numbers(word.partition(" ")[2])) > 0  # or the word is `No. 1`
                read += 1
    except UnicodeDecodeError as error:
        got = f"{path} ({error})"
        raise ValueError(f"{flag}: needs {kinds}, in UTF-8; got {got}. Use another, or convert it.") from None
    if not words:
        raise ValueError(f"{flag}: needs a word at least; got {path}, which has none. Use another.")
    if 2 * too_long > read:
        needs, got = f"a word and {width} numbers a line", f"more in {too_long:,} of {read:,} lines of {path}"
        raise ValueError(f"{flag}: needs {needs}, as its first line says; got {got}. Use {kinds}.")
    if announced not in (None, read):
        got = f"{read:,} in {path}"
        raise ValueError(f"{flag}: needs the {announced:,} words of its header; got {got}. Use a whole file.")
    return words


def _parsed(line: str, width: int | None) -> tuple[str, np.ndarray]:
    """Word and numbers of a line; as many numbers as can be read."""
    line = line.strip(SPACE)
    word, rest = [*re.split("[ \t]", line, maxsplit=1), ""][:2]
    row = _numbers(rest)
    if width and len(row) != width and len(fields := line.rsplit(" ", width)) == width + 1:
        word, row = fields[0], _numbers(" ".join(fields[1:]))
    return word, row


def _numbers(text: str) -> np.ndarray:
    try:
        with np.errstate(over="ignore"):  # what is too large becomes inf, which is refused
            return np.array(text.replace("_", "?").split(), np.float32)  # Python takes 1_0 for a number
    except ValueError:
        return np.empty(0, np.float32)
