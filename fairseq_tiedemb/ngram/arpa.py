r"""ARPA text, the n-gram format of SRILM, KenLM and others.

    \data\
    ngram 1=...                              number of n-grams, by order

    \1-grams:
    log10 p <tab> w_1 ... w_n <tab> log10 gamma        the back-off weight may be missing, and is then 0

    \end\

-99 stands for the logarithm of 0. Every n-gram's history must be an n-gram of the file.

Source: Doug Paul's format, as of SRILM's manual, ngram-format(5).
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from .counts import Indices, Reals
from .text import BOS, MARKS, UNKNOWN, Vocabulary

# n-grams turned into text, or read, at a time.
ARPA_CHUNK = 1 << 18
LOG_ZERO = -99.0
# How far a logarithm of a probability may be above 0, by rounding.
ROUNDING = 1e-6
# Which of the 256 bytes end a field, as for bytes.split().
SPACES = np.array([bytes([byte]).isspace() for byte in range(256)])


class Tables(NamedTuple):
    """The tables of a model: the attributes of ``BackoffModel``."""

    keys: list[Indices]
    probs: list[Reals]
    backoffs: list[Reals]


# --- writing ---------------------------------------------------------------------------------------------------------


def write(tables: Tables, words: Sequence[str], file: TextIO) -> None:
    """Writes a model's tables; `words` are in the order of their indices, <s> and </s> first."""
    file.write("\\data\\\n")
    for n, keys in enumerate(tables.keys, start=1):
        file.write(f"ngram {n}={len(keys)}\n")
    for n in range(1, len(tables.keys) + 1):
        file.write(f"\n\\{n}-grams:\n")
        for begin in range(0, len(tables.keys[n - 1]), ARPA_CHUNK):
            file.writelines(_lines(tables, n, slice(begin, begin + ARPA_CHUNK), words))
    file.write("\n\\end\\\n")


def _lines(tables: Tables, n: int, chunk: slice, words: Sequence[str]) -> Iterator[str]:
    columns: list[list[str]] = []
    ids = np.arange(len(tables.keys[n - 1]))[chunk]
    for keys in reversed(tables.keys[:n]):
        ids, last = np.divmod(keys[ids], len(words))
        columns.insert(0, [words[index] for index in last.tolist()])
    texts = map(" ".join, zip(*columns, strict=True))
    logs = _log10(tables.probs[n - 1][chunk])
    if n == len(tables.keys):
        return (f"{log:.9g}\t{text}\n" for log, text in zip(logs, texts, strict=True))
    backoffs = _log10(tables.backoffs[n - 1][chunk])
    return (f"{log:.9g}\t{text}\t{back:.9g}\n" for log, text, back in zip(logs, texts, backoffs, strict=True))


def _log10(values: Reals) -> list[float]:
    return np.log10(values, out=np.full(len(values), LOG_ZERO), where=values > 0).tolist()


# --- reading ---------------------------------------------------------------------------------------------------------


def read(path: str | Path, *, flag: str) -> tuple[Vocabulary, Tables]:
    """Reads a model of any order, and returns its closed vocabulary and its tables.

    ASCII white space separates words. <s> gets probability 0, whatever the file says. Errors name `flag`.

    Raises:
        ValueError: naming the line and its defect, if the file cannot be read, is not ARPA text, repeats an n-gram,
            lacks a word or the history of an n-gram, or lacks <s> or </s>.
    """
    try:
        with open(path, "rb") as file:
            return _Reader(file, path, flag).model()
    except OSError as error:
        raise ValueError(f"{flag}: needs an ARPA file; got {path} ({error.strerror}). Use another path.") from error


class _Section(NamedTuple):
    """The n-grams of one order, in the order of the file."""

    logs: Reals
    words_GN: Indices
    backoffs: Reals
    number: int  # of the line of the first one


class _Reader:
    """Reads one file from start to end; `number` is the number of the last line read."""

    def __init__(self, file: BinaryIO, path: str | Path, flag: str):
        self.file, self.path, self.flag = file, path, flag
        self.number = 0
        self.index: dict[bytes, int] = {}

    def model(self) -> tuple[Vocabulary, Tables]:
        counts, line = self._header()
        tables = Tables([], [], [])
        vocabulary = Vocabulary()
        for n, count in enumerate(counts, start=1):
            if line != b"\\%d-grams:" % n:
                raise self._error(f"the line \\{n}-grams:", line)
            section = self._section(n, count, vocabulary)
            keys = self._keys(section, tables.keys)
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            twice = np.flatnonzero(keys[1:] == keys[:-1])
            if len(twice):
                raise self._error("each n-gram once", "one again", section.number + int(order[twice[0] + 1]))
            tables.keys.append(keys)
            tables.probs.append(_powers(section.logs[order]))
            if n < len(counts):
                tables.backoffs.append(_powers(section.backoffs[order]))
            line = self._next()
        if line != b"\\end\\":
            raise self._error("the line \\end\\ after the n-grams that its header counts", line)
        tables.probs[0][BOS] = 0
        return vocabulary, tables

    def _error(self, need: str, got: bytes | str, number: int | None = None) -> ValueError:
        if isinstance(got, bytes):
            got = repr(got.decode("utf-8", "replace")) if got else "its end"
        return ValueError(
            f"{self.flag}: needs {need}; got {got} in line {number or self.number} of {self.path}. Use a whole ARPA "
            "file, as ngram --arpa, SRILM or KenLM writes it."
        )

    def _next(self) -> bytes:
        """Returns the next line that is not blank, stripped; b"" at the end of the file."""
        for line in self.file:
            self.number += 1
            if line := line.strip():
                return line
        return b""

    def _header(self) -> tuple[list[int], bytes]:
        """Returns the numbers of n-grams by order, and the line after them."""
        while (line := self._next()) != b"\\data\\":
            if not line:
                raise self._error("the line \\data\\", line)
        counts: list[int] = []
        while (line := self._next()).startswith(b"ngram "):
            order, _, count = line.removeprefix(b"ngram ").partition(b"=")
            if order.strip() != b"%d" % (len(counts) + 1) or not count.strip().isdigit():
                raise self._error(f"a line `ngram {len(counts) + 1}=COUNT`", line)
            counts.append(int(count))
        if not counts:
            raise self._error("a line `ngram 1=COUNT`", line)
        return counts, line

    def _section(self, n: int, count: int, vocabulary: Vocabulary) -> _Section:
        first = self.number + 1
        parts = [(np.empty(0), np.empty((0, n), dtype=np.int64), np.empty(0))]
        for begin in range(0, count, ARPA_CHUNK):
            lines = list(islice(self.file, min(ARPA_CHUNK, count - begin)))
            fields, starts, counts = _fields(lines)
            wrong = (counts < n + 1) | (counts > n + 2)
            if wrong.any():
                at = int(np.argmax(wrong))
                need = f"{count} lines `log10(p) {n} word{'s' * (n > 1)} [log10(weight)]`"
                raise self._error(need, lines[at].strip() or "a blank one", first + begin + at)
            self.number += len(lines)
            if len(lines) < min(ARPA_CHUNK, count - begin):
                raise self._error(f"{count} {n}-grams", f"the end after {begin + len(lines)}")
            if n == 1:
                self._add_words(fields[starts + 1].tolist(), vocabulary, self.number - len(lines) + 1)
            parts.append(self._columns(n, fields, starts, counts, self.number - len(lines) + 1))
        if n == 1:
            for mark in MARKS:
                if mark.encode() not in self.index:
                    raise self._error(f"{mark} among the 1-grams", "none")
            vocabulary.close()
            vocabulary.source, vocabulary.remedy = str(self.path), f"a model that was estimated with {UNKNOWN}"
        logs, words_GN, backoffs = (np.concatenate(each) for each in zip(*parts, strict=True))
        return _Section(logs, words_GN, backoffs, first)

    def _add_words(self, words: list[bytes], vocabulary: Vocabulary, first: int) -> None:
        for number, word in enumerate(words, start=first):
            try:
                text = word.decode()
            except UnicodeDecodeError as error:
                raise self._error("UTF-8", f"another encoding ({error})", number) from None
            if text in MARKS:
                self.index[word] = MARKS.index(text)
            else:
                self.index[word] = vocabulary.setdefault(text, vocabulary.size)

    def _columns(
        self, n: int, fields: NDArray[np.object_], starts: Indices, counts: Indices, first: int
    ) -> tuple[Reals, Indices, Reals]:
        """Returns logarithms, words (G, n) and logarithms of back-off weights; `first` is the first line's number."""
        logs = self._numbers(fields[starts].tolist(), np.arange(len(starts)) + first, "logarithms of at most 0")
        weighted = np.flatnonzero(counts == n + 2)
        backoffs = np.zeros(len(starts))
        backoffs[weighted] = self._numbers(
            fields[starts[weighted] + n + 1].tolist(), weighted + first, "finite weights"
        )
        words = fields[(starts[:, None] + 1 + np.arange(n)).ravel()].tolist()
        try:
            ids = np.array(list(map(self.index.__getitem__, words)), dtype=np.int64)
        except KeyError as error:
            [word] = error.args
            raise self._error("words that are among the 1-grams", word, first + words.index(word) // n) from None
        return logs, ids.reshape(len(starts), n), backoffs

    def _numbers(self, texts: list[bytes], numbers: Indices, need: str) -> Reals:
        """Parses numbers, which must be below infinity, and at most 0 if they are log-probabilities."""
        highest = ROUNDING if "at most" in need else np.finfo(float).max
        try:
            values = np.array(list(map(float, texts)))
        except ValueError:
            values = np.array(list(map(_number, texts)))
        wrong = ~(values <= highest)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise self._error(need, texts[at], int(numbers[at]))
        return values

    def _keys(self, section: _Section, known: list[Indices]) -> Indices:
        """Returns the n-grams' keys in the order of the file, from the sorted keys of lower orders."""
        words_GN, keys = section.words_GN, section.words_GN[:, 0]
        for n in range(1, words_GN.shape[1]):
            ids = np.searchsorted(known[n - 1], keys)
            lacking = np.append(known[n - 1], -1)[ids] != keys
            if lacking.any():
                at = int(np.argmax(lacking))
                words = {index: word for word, index in self.index.items()}
                history = b" ".join(words[index] for index in words_GN[at, :n].tolist())
                raise self._error("every history as an n-gram of its own", history, section.number + at)
            keys = ids * len(self.index) + words_GN[:, n]
        return keys


def _fields(lines: list[bytes]) -> tuple[NDArray[np.object_], Indices, Indices]:
    """Splits lines at white space into fields; also returns every line's first field and its number of fields."""
    text = b"".join(lines)
    is_space = SPACES[np.frombuffer(text, dtype=np.uint8)]
    begins = np.flatnonzero(~is_space & np.concatenate(([True], is_space[:-1])))
    ends = np.cumsum(np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)))
    counts = np.bincount(np.searchsorted(ends, begins, side="right"), minlength=len(lines))
    fields = np.empty(len(begins), dtype=object)
    fields[:] = text.split()
    return fields, np.cumsum(counts) - counts, counts


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _powers(logs: Reals) -> Reals:
    return np.where(logs > LOG_ZERO, 10.0 ** np.minimum(logs, 300), 0.0)
