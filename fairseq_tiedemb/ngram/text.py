"""Text as n-gram models read it: lines, sentences between <s> and </s>, words and their indices."""

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MARKS = ("<s>", "</s>")
BOS, EOS = range(2)
UNKNOWN = "<unk>"


def read_lines(path: str | Path, *, flag: str) -> Iterator[tuple[int, str]]:
    """Yields the lines of a UTF-8 text, numbered from 1, without its byte-order mark.

    Raises:
        ValueError: naming the flag and the file, if it cannot be read or is not UTF-8.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            yield from enumerate(file, start=1)
    except OSError as error:
        raise ValueError(f"{flag}: needs a text file; got {path} ({error.strerror}). Use another path.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{flag}: needs UTF-8 text; got {path} ({error}). Use iconv on it.") from error


class Vocabulary(dict[str, int]):
    """Words and their indices, which follow those of <s> and </s>.

    Looking up a word adds it, until the vocabulary is closed; from then on other words are <unk>, or are refused if the
    vocabulary has no <unk>. No text may spell <s> and </s>.
    """

    closed = False
    # What a refused word is said to be missing from, and what to do about it.
    source = "the training text"
    remedy = f"--dict, or a training text whose rare words are {UNKNOWN}"

    @classmethod
    def from_dictionary(cls, path: str | Path) -> "Vocabulary":
        """Returns the closed vocabulary of fairseq's dict.txt: its words, and <unk>, which every other word becomes.

        Raises:
            ValueError: naming the line that is not of the form ``word count``.
        """
        vocabulary = cls()
        for number, line in read_lines(path, flag="--dict"):
            word, *rest = line.split() or [""]
            if not rest or not rest[0].isdecimal():
                raise ValueError(
                    f"--dict: needs lines `word count`; got {line.rstrip()!r} in line {number} of {path}. "
                    f"Use the dict.txt that fairseq-preprocess wrote."
                )
            if word not in MARKS:
                vocabulary.setdefault(word, vocabulary.size)
        vocabulary.setdefault(UNKNOWN, vocabulary.size)
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
        """The words in the order of their indices, <s> and </s> first."""
        return [*MARKS, *self]

    def close(self) -> None:
        """Takes up no more words."""
        self.closed = True

    @property
    def size(self) -> int:
        """Number of indices: words, <s> and </s>."""
        return len(MARKS) + len(self)

    def read(self, paths: Sequence[str | Path], *, flag: str) -> NDArray[np.int32]:
        """Reads text as fairseq-preprocess does: a sentence a line (a blank one too), words between white space.

        Args:
            paths: UTF-8 text files.
            flag: what errors call them.

        Returns:
            Indices (N,); each sentence stands between BOS and EOS.

        Raises:
            ValueError: naming the file and what is wrong with it, if it cannot be read, is empty, or has a word that
                the vocabulary refuses.
        """
        tokens = array("i")
        for path in paths:
            before = len(tokens)
            for number, line in read_lines(path, flag=flag):
                tokens.append(BOS)
                try:
                    tokens.extend(map(self.__getitem__, line.split()))
                except KeyError as error:
                    raise ValueError(self._refusal(error.args[0], f"line {number} of {path}", flag)) from None
                tokens.append(EOS)
            if len(tokens) == before:
                raise ValueError(f"{flag}: needs text; got {path}, which is empty. Use a file with a sentence a line.")
        return np.array(tokens, dtype=np.int32)

    def _refusal(self, word: str, place: str, flag: str) -> str:
        if word in MARKS:
            return (
                f"{flag}: needs text without <s> and </s>, which are added to each line; got {word} in {place}. "
                f"Use the text without them."
            )
        return (
            f"{flag}: needs the words of {self.source}, which has no {UNKNOWN} to stand for others; got {word!r} "
            f"in {place}. Use {self.remedy}."
        )
