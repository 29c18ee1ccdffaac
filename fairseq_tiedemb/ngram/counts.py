"""Counts n-grams, order by order."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .fields import Indices, index_of
from .text import BOS, EOS


class Level(NamedTuple):
    """The G different n-grams of one order n, sorted."""

    # (G,), ascending: the history's index among the (n-1)-grams, times the vocabulary's size, plus the last word.
    keys: Indices
    suffixes: Indices  # (G,), index of the last n - 1 words among the (n-1)-grams; the word itself at n = 1
    counts: Indices  # (G,), counts, or continuation counts a(g), see ``count_ngrams``


def count_ngrams(tokens: NDArray[np.int32], order: int, size: int, *, continuation: bool = True) -> list[Level]:
    """Counts the n-grams of orders 1 to `order`.

    With `continuation`, as in Kneser-Ney smoothing: a(g) is the plain count of g if g is of the highest order or starts
    with <s>, else its continuation count, the number of different words before it. Otherwise all counts are plain. <s>
    counts 0, since it is never predicted. `tokens` (N,), all below `size`, have BOS and EOS around every sentence.

    Source: Chen & Goodman 1999, section 2.7 (a).
    """
    words = np.arange(size)
    levels = [Level(words, words, np.bincount(tokens, minlength=size))]
    starts = np.arange(len(tokens))  # start positions of n-grams within a sentence
    ids = tokens.astype(np.int64)  # indices of the n-grams at `starts`; meaningless elsewhere
    for n in range(2, order + 1):
        lower = levels[-1]
        sentence_starts = ids[starts[tokens[starts] == BOS]]
        starts = starts[tokens[starts + n - 2] != EOS]
        keys, which = np.unique(ids[starts] * size + tokens[starts + n - 1], return_inverse=True)
        suffixes = np.empty(len(keys), dtype=np.int64)
        suffixes[which] = ids[starts + 1]
        if continuation:
            # No word precedes <s>: an n-gram that starts with it is never a suffix, and keeps its plain count.
            counts = np.bincount(np.concatenate((suffixes, sentence_starts)), minlength=len(lower.keys))
            levels[-1] = lower._replace(counts=counts)
        ids[starts] = which
        levels.append(Level(keys, suffixes, np.bincount(which, minlength=len(keys))))
    levels[0].counts[BOS] = 0
    return levels


class Match(NamedTuple):
    """The n-grams of a text whose history a model has: position of the last word, and index of the history.

    Those that the model has are at `seen`, and are its n-grams `ids`; those that it lacks are at `unseen`.
    """

    ends: Indices
    histories: Indices
    unseen: Indices
    seen: Indices
    ids: Indices


def look_up(keys: Sequence[Indices], tokens: NDArray[np.int32], size: int) -> Iterator[Match]:
    """Finds the n-grams of a text in a model, order by order from 2, in the order of the first two words' indices.

    In the order of the text every search would begin in memory that is not in the cache. `keys` are those of all orders
    from 1, as in ``Level``, `tokens` (N,) the text, and `size` is the number of indices.
    """
    words = tokens.astype(np.int64)  # of which keys are made
    following = np.append(words[1:], BOS)
    ends = np.flatnonzero(following != BOS)
    wanted = (words * size + following)[ends]
    order = np.argsort(wanted)
    ends, wanted = ends[order], wanted[order]
    histories = words[ends]
    for known in keys[1:]:
        ids = index_of(known, wanted)
        seen = np.flatnonzero(ids >= 0)
        ends, unseen, ids = ends + 1, np.flatnonzero(ids < 0), ids[seen]
        yield Match(ends, histories, unseen, seen, ids)
        ends = ends[seen]
        going_on = np.flatnonzero(following[ends] != BOS)
        ends, histories = ends[going_on], ids[going_on]
        wanted = histories * size + following[ends]
