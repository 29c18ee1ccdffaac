"""The n-gram baseline: an interpolated language model with modified Kneser-Ney smoothing, in numpy alone.

For an n-gram hw of history h and word w, with h' the history without its first word and W the words that can follow
(everything but <s>),

    p_n(w | h) = (a(hw) - D_n(a(hw))) / sum_v a(hv)  +  gamma_n(h) p_{n-1}(w | h')
    gamma_n(h) = sum_v D_n(a(hv)) / sum_v a(hv)      p_0(w) = 1 / W      p_n(w | h) = p_{n-1}(w | h') if h was not seen

where a(g) is the plain count of g if g is of the highest order or starts with <s>, and else its continuation count, the
number of different words seen before it. Each order has three discounts, D_n(1), D_n(2) and D_n(3 and more).

A sentence is <s> w_1 ... w_m </s>: no history reaches over <s>, and </s> is predicted. <unk> is a word like any other.

Source: Chen & Goodman, An empirical study of smoothing techniques for language modeling, Computer Speech and Language
13, 1999, section 3.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Reals = NDArray[np.float64]

MARKS = ("<s>", "</s>")
BOS, EOS = range(2)
UNKNOWN = "<unk>"

# Where the counts do not determine the discounts; lmplz's --discount_fallback takes the same.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)

# n-grams turned into text at a time.
ARPA_CHUNK = 1 << 18


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
            f"{flag}: needs the words of the training text, which has no {UNKNOWN} to stand for others; got {word!r} "
            f"in {place}. Use --dict, or a training text whose rare words are {UNKNOWN}."
        )


@dataclass
class Level:
    """The different n-grams of one order n, G in number, sorted.

    Attributes:
        keys: (G,), ascending: index of the first n - 1 words among the (n-1)-grams, times the vocabulary's size, plus
            the last word.
        suffixes: (G,), index of the last n - 1 words among the (n-1)-grams; of the word itself at n = 1.
        counts: (G,), a(g) of the module's equations.
    """

    keys: Indices
    suffixes: Indices
    counts: Indices


def count_ngrams(tokens: NDArray[np.int32], order: int, size: int) -> list[Level]:
    """Counts the n-grams of orders 1 to `order`.

    Args:
        tokens: indices (N,); each sentence stands between BOS and EOS.
        order: the highest n.
        size: number of indices.
    """
    words = np.arange(size)
    levels = [Level(words, words, np.bincount(tokens, minlength=size))]
    starts = np.arange(len(tokens))  # where an n-gram starts that lies within a sentence
    ids = tokens.astype(np.int64)  # and which it is; elsewhere meaningless
    for n in range(2, order + 1):
        lower = levels[-1]
        sentence_starts = ids[starts[tokens[starts] == BOS]]
        starts = starts[tokens[starts + n - 2] != EOS]
        keys, which = np.unique(ids[starts] * size + tokens[starts + n - 1], return_inverse=True)
        suffixes = np.empty(len(keys), dtype=np.int64)
        suffixes[which] = ids[starts + 1]
        # Nothing stands before <s>, so what starts with it is no suffix and has its plain count.
        lower.counts = np.bincount(np.concatenate((suffixes, sentence_starts)), minlength=len(lower.keys))
        ids[starts] = which
        levels.append(Level(keys, suffixes, np.bincount(which, minlength=len(keys))))
    levels[0].counts[BOS] = 0  # it is never predicted
    return levels


def discounts(counts: Indices) -> tuple[float, float, float] | None:
    """The discounts D(1), D(2), D(3 and more) of one order, from n_k, the number of its n-grams whose count is k.

        Y = n_1 / (n_1 + 2 n_2)     D(k) = k - (k + 1) Y n_{k+1} / n_k

    Returns:
        The discounts, or None if they are undefined or useless: one of n_1 ... n_4 is zero, or a discount is not
        positive.
    """
    _, n1, n2, n3, n4 = np.bincount(np.minimum(counts, 5), minlength=6)[:5].tolist()
    if min(n1, n2, n3, n4) == 0:
        return None
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if min(found) > 0 else None


class KneserNey:
    """The model of the module's equations.

    Args:
        tokens: indices (N,) of the training text; each sentence stands between BOS and EOS (``Vocabulary.read``).
        order: n of the longest n-grams, at least 1.
        size: number of indices, ``Vocabulary.size``. Words that the text lacks get their share of p_0.

    Attributes:
        keys: of each order (G,), see ``Level``.
        probs: p_n of each order's n-grams (G,); 0 for <s> alone.
        backoffs: gamma_{n+1} of each order's n-grams (G,), 1 if none was seen to go on; nothing for the last order.
        discounts: of each order.
        fallbacks: orders whose counts do not determine the discounts; they have FALLBACK_DISCOUNTS.

    Raises:
        ValueError: if the order is below 1.
    """

    def __init__(self, tokens: NDArray[np.int32], order: int, size: int):
        if order < 1:
            raise ValueError(f"--order: needs a whole number of at least 1; got {order}. Use 5.")
        self.order = order
        self.size = size
        self.keys: list[Indices] = []
        self.probs: list[Reals] = []
        self.backoffs: list[Reals] = []
        self.discounts: list[tuple[float, float, float]] = []
        self.fallbacks: list[int] = []
        levels = count_ngrams(tokens, order, size)
        lower = np.full(size, 1 / (size - 1))
        lower[BOS] = 0
        contexts = 1
        for n in range(1, order + 1):
            lower, backoff = self._estimate(n, levels.pop(0), lower, contexts)
            self.probs.append(lower)
            if n > 1:
                self.backoffs.append(backoff)
            contexts = len(lower)

    def _estimate(self, n: int, level: Level, lower: Reals, contexts: int) -> tuple[Reals, Reals]:
        """p_n of the n-grams (G,) and gamma_n of the (n-1)-grams (`contexts`,), given p_{n-1} (`contexts`,)."""
        found = discounts(level.counts)
        if found is None:
            self.fallbacks.append(n)
        self.discounts.append(found or FALLBACK_DISCOUNTS)
        self.keys.append(level.keys)
        discount = np.array((0.0, *self.discounts[-1]))[np.minimum(level.counts, 3)]
        histories = level.keys // self.size
        total = np.bincount(histories, weights=level.counts, minlength=contexts)
        seen = total > 0
        backoff = np.ones(contexts)
        np.divide(np.bincount(histories, weights=discount, minlength=contexts), total, out=backoff, where=seen)
        probs = (level.counts - discount) / total[histories] + backoff[histories] * lower[level.suffixes]
        return probs, backoff

    def probabilities(self, tokens: NDArray[np.int32]) -> Reals:
        """p(w | h) of every token, given those before it in its sentence.

        Args:
            tokens: indices (N,). Histories end at BOS; without it, they end where the indices do.

        Returns:
            Probabilities (N,), 0 for BOS.
        """
        probs = self.probs[0][tokens]
        ids = tokens.astype(np.int64)  # of the (n-1)-gram that starts here, or -1 if it was not seen
        for n, (keys, longer, backoff) in enumerate(
            zip(self.keys[1:], self.probs[1:], self.backoffs, strict=True), start=2
        ):
            if len(tokens) < n or not len(keys):
                break
            histories = ids[: len(tokens) - n + 1]
            wanted = histories * self.size + tokens[n - 1 :]
            ids = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            ids[keys[ids] != wanted] = -1
            shorter = np.where(histories < 0, 1, backoff[histories]) * probs[n - 1 :]
            probs[n - 1 :] = np.where(ids < 0, shorter, longer[ids])
        return probs

    def perplexity(self, tokens: NDArray[np.int32]) -> float:
        """exp of the mean negative log-probability of all tokens but <s>."""
        return float(np.exp(-np.log(self.probabilities(tokens)[tokens != BOS]).mean()))

    def write_arpa(self, words: Sequence[str], file: TextIO) -> None:
        """Writes the model as ARPA text: base-10 logarithms, by order, of probabilities and weights of backing off.

        Args:
            words: the words in the order of their indices, <s> and </s> first.
            file: where to.
        """
        file.write("\\data\\\n")
        for n, keys in enumerate(self.keys, start=1):
            file.write(f"ngram {n}={len(keys)}\n")
        for n in range(1, self.order + 1):
            file.write(f"\n\\{n}-grams:\n")
            for begin in range(0, len(self.keys[n - 1]), ARPA_CHUNK):
                file.writelines(self._arpa_lines(n, begin, words))
        file.write("\n\\end\\\n")

    def _arpa_lines(self, n: int, begin: int, words: Sequence[str]) -> Iterator[str]:
        chunk = slice(begin, begin + ARPA_CHUNK)
        probs = self.probs[n - 1][chunk]
        # By convention -99 stands for the logarithm of 0, which only <s> has.
        logs = np.log10(probs, out=np.full(len(probs), -99.0), where=probs > 0).tolist()
        columns: list[list[str]] = []
        ids = np.arange(len(self.keys[n - 1]))[chunk]
        for keys in reversed(self.keys[:n]):
            ids, last = np.divmod(keys[ids], self.size)
            columns.insert(0, [words[index] for index in last.tolist()])
        texts = map(" ".join, zip(*columns, strict=True))
        if n == self.order:
            return (f"{log:.9g}\t{text}\n" for log, text in zip(logs, texts, strict=True))
        backoffs = np.log10(self.backoffs[n - 1][chunk]).tolist()
        return (f"{log:.9g}\t{text}\t{back:.9g}\n" for log, text, back in zip(logs, texts, backoffs, strict=True))
