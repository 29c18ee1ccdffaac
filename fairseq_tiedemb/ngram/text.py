"""Reads text for n-gram models: lines, sentences between <s> and </s>, word indices."""

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.text import read_dict, read_lines
from .fields import Fields, Words

MARKS = ("<s>", "</s>")
BOS, EOS = range(2)
UNKNOWN = "<unk>"
LINES = 4096  # read at a time


class Vocabulary(dict[str, int]):
    """Maps words to indices, which follow those of <s> and </s>.

    Looking up a new word adds it until the vocabulary is closed. Then a new word becomes <unk>, or raises KeyError if
    the vocabulary has no <unk>. Text must not contain <s> and </s>.
    """

    closed = False
    # The source of the words, and the remedy, that the error about a refused word names.
    source = "the training text"
    remedy = f"--dict, or a training text whose rare words are {UNKNOWN}"

    @classmethod
    def from_dictionary(cls, path: str | Path) -> "Vocabulary":
        """Returns the closed vocabulary of a dict.txt, with <unk>; ValueError if it is empty or unreadable."""
        vocabulary, words = cls(), [word for word, _ in read_dict(path, flag="--dict")]
        if not words:
            raise ValueError(f"--dict: needs words; got {path}, which is empty. Use the dict.txt of a training.")
        for word in [*words, UNKNOWN]:
            if word not in MARKS:
                vocabulary.setdefault(word, vocabulary.size)
        vocabulary.close()
        return vocabulary

    def __missing__(self, word: str) -> int:
        if word not in MARKS:
            if not self.closed:
                return self.setdefault(word, self.size)
            if UNKNOWN in self:
                return self[UNKNOWN]
        raise KeyError(word)

    def symbols(self) -> list[str]:
        """Returns the words in the order of their indices, <s> and </s> first."""
        return [*MARKS, *self]

    def close(self) -> None:
        """Stops adding words."""
        self.closed = True

    @cached_property
    def words(self) -> Words:
        """Finds the words of a closed vocabulary."""
        return Words(self.symbols())

    @property
    def size(self) -> int:
        """Number of indices: words, <s> and </s>."""
        return len(MARKS) + len(self)

    def read(self, paths: Sequence[str | Path], *, flag: str) -> NDArray[np.int32]:
        """Reads UTF-8 text as fairseq-preprocess does: a sentence per line, words between white space.

        A blank line is a sentence, too. The result is indices (N,), with BOS and EOS around every sentence. ValueError,
        naming `flag` and the file, if it cannot be read, is empty, or has a word that the vocabulary refuses.
        """
        parts = [np.empty(0, dtype=np.int32)]
        for path in paths:
            lines = read_lines(path, flag=flag)
            before = len(parts)
            while batch := list(islice(lines, LINES)):
                part = self._all_at_once("".join(line for _, line in batch)) if self.closed else None
                parts.append(self._one_by_one(batch, path, flag) if part is None else part)
            if len(parts) == before:
                got = f"{path}, which is empty"
                raise ValueError(f"{flag}: needs text; got {got}. Use a file with one sentence per line.")
        return np.concatenate(parts)

    def _all_at_once(self, lines: str) -> NDArray[np.int32] | None:
        """Returns the indices of lines as ``_one_by_one`` does, in half of the time.

        None if lines have a word to refuse, or a character that may be white space for str.split() and not for bytes.
        """
        text = Fields(lines.encode())
        if not lines.isascii() or (text.text - np.uint8(0x1C) < 4).any():
            return None
        ids = self.words.find(text, np.arange(len(text.begins)))
        if UNKNOWN in self:
            ids[ids < 0] = self[UNKNOWN]
        if (ids <= EOS).any():
            return None
        places = np.stack((text.firsts, text.firsts + text.counts), axis=1).ravel()
        return np.insert(ids, places, np.tile([BOS, EOS], len(text.firsts))).astype(np.int32)

    def _one_by_one(self, lines: Sequence[tuple[int, str]], path: str | Path, flag: str) -> NDArray[np.int32]:
        tokens = array("i")
        for number, line in lines:
            try:
                tokens.fromlist([BOS, *map(self.__getitem__, line.split()), EOS])
            except KeyError as error:
                word, needs = error.args[0], "text without <s> and </s>, which are added to each line"
                got, use = word, "the text without them"
                if word not in MARKS:
                    needs = f"the words of {self.source}, which has no {UNKNOWN} to stand for others"
                    got, use = repr(word), self.remedy
                raise ValueError(f"{flag}: needs {needs}; got {got} in line {number} of {path}. Use {use}.") from None
        return np.array(tokens, dtype=np.int32)
