r"""ARPA text, the n-gram format of SRILM, KenLM and others.

    \data\
    ngram 1=...                              number of n-grams, by order

    \1-grams:
    log10 p <tab> w_1 ... w_n <tab> log10 gamma        the back-off weight may be missing, and is then 0

    \end\

-99 stands for the logarithm of 0. Every n-gram's history must be an n-gram of the file.

Source: Doug Paul's format, as of SRILM's manual, ngram-format(5).
"""

import codecs
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

import numpy as np

from ..checkpoints.text import DIGITS
from .fields import Fields, Indices, Reals, first_true, index_of
from .text import BOS, MARKS, UNKNOWN, Vocabulary

# n-grams turned into text, or bytes read, at a time.
ARPA_CHUNK = 1 << 18
LOG_ZERO = -99.0
# How far a logarithm of a probability may be above 0, by rounding.
ROUNDING = 1e-6
LARGEST = float(np.finfo(np.float64).max)


class Tables(NamedTuple):
    """The tables of a model: the attributes of ``BackoffModel``."""

    keys: list[Indices]
    probs: list[Reals]
    backoffs: list[Reals]


def write(tables: Tables, words: Sequence[str], file: TextIO) -> None:
    """Writes a model's tables; `words` are in the order of their indices, <s> and </s> first."""
    file.write("\\data\\\n")
    file.writelines(f"ngram {n}={len(keys)}\n" for n, keys in enumerate(tables.keys, start=1))
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


class _Reader:
    """Reads one file from start to end; `number` is the number of the last line read."""

    def __init__(self, file: BinaryIO, path: str | Path, flag: str):
        self.file, self.path, self.flag = file, path, flag
        self.number = 0
        self.ahead = BytesIO()  # what was read of the file, and not yet used
        self.vocabulary, self.tables = Vocabulary(), Tables([], [], [])
        self.vocabulary.source, self.vocabulary.remedy = str(path), f"a model that was estimated with {UNKNOWN}"

    def model(self) -> tuple[Vocabulary, Tables]:
        counts, line = self._header()
        for n, count in enumerate(counts, start=1):
            if line != b"\\%d-grams:" % n:
                raise self._error(f"the line \\{n}-grams:", line)
            first = self.number + 1
            keys, probs, backoffs = (np.concatenate(each) for each in zip(*self._parts(n, count), strict=True))
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            if (twice := first_true(keys[1:] == keys[:-1])) is not None:
                raise self._error("each n-gram once", "one again", first + int(order[twice + 1]))
            self.tables.keys.append(keys)
            self.tables.probs.append(probs[order])
            if n < len(counts):
                self.tables.backoffs.append(backoffs[order])
            if n == 1:
                for index, mark in enumerate(MARKS):
                    if index not in keys:
                        raise self._error(f"{mark} among the 1-grams", "none")
                self.vocabulary.close()
            line = self._next()
        if line != b"\\end\\":
            raise self._error("the line \\end\\ after the n-grams that its header counts", line)
        self.tables.probs[0][BOS] = 0
        return self.vocabulary, self.tables

    def _error(self, need: str, got: bytes | str, number: int | None = None) -> ValueError:
        if isinstance(got, bytes):
            got = repr(got.decode("utf-8", "replace")) if got else "its end"
        place, use = f"line {number or self.number} of {self.path}", "as ngram --arpa, SRILM or KenLM writes it"
        return ValueError(f"{self.flag}: needs {need}; got {got} in {place}. Use a whole ARPA file, {use}.")

    def _next(self) -> bytes:
        """Returns the next line that is not blank, stripped; b"" at the end of the file."""
        while line := self.ahead.readline() or self.file.readline():
            self.number += 1
            if line := line.strip():
                return line
        return b""

    def _header(self) -> tuple[list[int], bytes]:
        """Returns the numbers of n-grams by order, and the line after them."""
        while (line := self._next().removeprefix(codecs.BOM_UTF8)) != b"\\data\\":
            if not line:
                raise self._error("the line \\data\\", line)
        counts: list[int] = []
        while (line := self._next()).startswith(b"ngram "):
            order, _, count = line.removeprefix(b"ngram ").partition(b"=")
            if order.strip() != b"%d" % (len(counts) + 1) or not count.strip().isdigit() or len(count) > DIGITS:
                raise self._error(f"a line `ngram {len(counts) + 1}=COUNT`", line)
            counts.append(int(count))
        if not counts:
            raise self._error("a line `ngram 1=COUNT`", line)
        return counts, line

    def _parts(self, n: int, count: int) -> Iterator[tuple[Indices, Reals, Reals]]:
        """Yields keys, probabilities and back-off weights of the n-grams of one order, in the order of the file."""
        yield np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)
        left = count
        while left:
            lines = self._lines(left)
            fields = Fields(lines)
            if (at := first_true((fields.counts < n + 1) | (fields.counts > n + 2))) is not None:
                need = f"{count} lines `log10(p) {n} word{'s' * (n > 1)} [log10(weight)]`"
                raise self._error(need, lines.split(b"\n")[at].strip() or "a blank one", self.number + 1 + at)
            first, size = self.number + 1, len(fields.counts)
            self.number += size
            left -= size
            if left and not lines.endswith(b"\n"):
                raise self._error(f"{count} {n}-grams", f"the end after {count - left}")
            keys = self._unigrams(lines.split(), fields, first) if n == 1 else self._keys(n, fields, first)
            every, weighted = np.arange(size), np.flatnonzero(fields.counts == n + 2)
            logs = self._numbers(fields, fields.firsts, every + first, "logarithms of at most 0", ROUNDING)
            backoffs, places = np.ones(size), fields.firsts[weighted] + n + 1
            backoffs[weighted] = _powers(self._numbers(fields, places, weighted + first, "finite weights", LARGEST))
            yield keys, _powers(logs), backoffs

    def _lines(self, most: int) -> bytes:
        """Returns the next lines, at most so many and of about ARPA_CHUNK bytes; b"" at the end of the file."""
        text = self.ahead.read() or self.file.read(ARPA_CHUNK) + self.file.readline()
        if text.count(b"\n") < most:
            return text
        self.ahead = BytesIO(text)
        return b"".join(islice(self.ahead, most))

    def _numbers(self, fields: Fields, which: Indices, numbers: Indices, need: str, highest: float) -> Reals:
        """Reads fields as floats of at most `highest`; the error has `need` and the field's line, from `numbers`."""
        values = fields.numbers(which)
        if (at := first_true(~(values <= highest))) is not None:
            raise self._error(need, fields.field(which[at]), int(numbers[at]))
        return values

    def _unigrams(self, texts: list[bytes], fields: Fields, first: int) -> Indices:
        """Adds the words of 1-grams to the vocabulary, and returns their indices."""
        ids = []
        for number, at in enumerate((fields.firsts + 1).tolist(), start=first):
            try:
                word = texts[at].decode()
            except UnicodeDecodeError as error:
                raise self._error("UTF-8", f"another encoding ({error})", number) from None
            known = self.vocabulary
            ids.append(MARKS.index(word) if word in MARKS else known.setdefault(word, known.size))
        return np.array(ids, dtype=np.int64)

    def _keys(self, n: int, fields: Fields, first: int) -> Indices:
        """Returns the keys of n-grams from the sorted keys of lower orders; `first` is the number of the first line."""
        places_nL = fields.firsts + np.arange(1, n + 1)[:, None]
        ids_nL = self.vocabulary.words.find(fields, places_nL.ravel()).reshape(n, -1)
        if (at := first_true(ids_nL.min(axis=0) < 0)) is not None:
            word = fields.field(places_nL[np.argmin(ids_nL[:, at]), at])
            raise self._error("words that are among the 1-grams", word, first + at)
        keys = ids_nL[0]
        for known, places, ids in zip(self.tables.keys, places_nL[1:], ids_nL[1:], strict=True):
            histories = index_of(known, keys)
            if (at := first_true(histories < 0)) is not None:
                history = b" ".join(map(fields.field, range(fields.firsts[at] + 1, places[at])))
                raise self._error("every history as an n-gram of its own", history, first + at)
            keys = histories * self.vocabulary.size + ids
        return keys


def _powers(logs: Reals) -> Reals:
    return np.where(logs > LOG_ZERO, 10.0 ** np.minimum(logs, 300), 0.0)
