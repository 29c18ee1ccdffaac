"""n-grams and their counts, order by order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .text import BOS, EOS

Indices = NDArray[np.int64]


@dataclass
class Level:
    """The different n-grams of one order n, G in number, sorted.

    Attributes:
        keys: (G,), ascending: index of the first n - 1 words among the (n-1)-grams, times the vocabulary's size, plus
            the last word.
        suffixes: (G,), index of the last n - 1 words among the (n-1)-grams; of the word itself at n = 1.
        counts: (G,), how often each was seen, or a(g), see ``count_ngrams``.
    """

    keys: Indices
    suffixes: Indices
    counts: Indices


def count_ngrams(tokens: NDArray[np.int32], order: int, size: int, *, continuation: bool = True) -> list[Level]:
    """Counts the n-grams of orders 1 to `order`.

    With `continuation`, as Kneser-Ney smoothing counts: a(g) is the plain count of g if g is of the highest order or
    starts with <s>, and else its continuation count, the number of different words seen before it. Without, all counts
    are plain ones. <s> itself counts 0, for it is never predicted.

    Args:
        tokens: indices (N,); each sentence stands between BOS and EOS.
        order: the highest n.
        size: number of indices.
        continuation: whether lower orders have continuation counts.

    Source: Chen & Goodman 1999, section 2.7 (a).
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
        if continuation:
            # Nothing stands before <s>, so what starts with it is no suffix and has its plain count.
            lower.counts = np.bincount(np.concatenate((suffixes, sentence_starts)), minlength=len(lower.keys))
        ids[starts] = which
        levels.append(Level(keys, suffixes, np.bincount(which, minlength=len(keys))))
    levels[0].counts[BOS] = 0
    return levels


def look_up(keys: Sequence[Indices], tokens: NDArray[np.int32], size: int) -> Iterator[tuple[Indices, Indices]]:
    """Finds the n-grams of a text among known ones, order by order from 2 on.

    Args:
        keys: of each order from 1 on, as of ``Level``.
        tokens: indices (N,) of the text.
        size: number of indices.

    Yields:
        For each order n two arrays (N - n + 1,), about the n-gram that ends at each token but the first n - 1: which
        (n-1)-gram its history is, and which n-gram it is; -1 for one that is not known.
    """
    ids = tokens.astype(np.int64)
    for n, known in enumerate(keys[1:], start=2):
        if len(tokens) < n or not len(known):
            return
        histories = ids[: len(tokens) - n + 1]
        wanted = histories * size + tokens[n - 1 :]
        ids = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        ids[known[ids] != wanted] = -1
        yield histories, ids
