"""Word classes for a class bigram model, by maximum likelihood, and a binary tree of the classes.

    p(w_t | w_{t-1}) = p(c_t | c_{t-1}) p(w_t | c_t)        c_t the class of w_t

With N_ab the bigrams from class a to class b, N_a. and N_.b their sums, n_w the word counts, and f(x) = x log x,

    log P = sum_ab f(N_ab) - sum_a f(N_a.) - sum_b f(N_.b) + sum_w f(n_w)

whose last sum does not depend on the classes. Source: Brown et al. 1992, section 3.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class WordClasses(NamedTuple):
    """The result of ``exchange``."""

    class_of: np.ndarray  # class of every word (V,), 0 ... C - 1
    bigrams: np.ndarray  # number of bigrams from class a to class b, (C, C), float64
    log_likelihood: float  # log P of all words but the first, in nats
    moved: list[int]  # number of words that changed class, by round


def exchange(
    tokens: np.ndarray, size: int, classes: int, *, rounds: int, report: Callable[[int, int], None] | None = None
) -> WordClasses:
    """Clusters words: moves one word at a time, frequent ones first, to the class of largest log P, until none moves.

    A move costs C times the number of neighbouring classes, a round at most V C^2.

    Args:
        tokens: the text (N,), words 0 ... V - 1, at least two.
        size: V; words that do not occur stay in their first class.
        classes: C, at most the number of words that occur; the word of rank r starts in class r mod C.
        rounds: maximum number of rounds over all words.
        report: called after every round with its number, from 1, and the number of moved words.

    Source: Kneser & Ney 1993; Martin, Liermann & Ney 1998, section 2.
    """
    counts = np.bincount(tokens, minlength=size)
    same = tokens[:-1] == tokens[1:]
    itself = np.bincount(tokens[1:][same], minlength=size).astype(float)
    first, second = tokens[:-1][~same], tokens[1:][~same]
    after, before = _Neighbours.of(first, second, size), _Neighbours.of(second, first, size)
    rank = np.argsort(-counts, kind="stable")
    class_of = np.empty(size, np.int64)
    class_of[rank] = np.arange(size) % classes
    N = np.zeros((classes, classes))
    np.add.at(N, (class_of[tokens[:-1]], class_of[tokens[1:]]), 1)
    row, column = N.sum(1), N.sum(0)
    present = rank[: np.count_nonzero(counts)]
    moved: list[int] = []
    while len(moved) < rounds and (not moved or moved[-1]):
        moved.append(0)
        for word in present:
            old = class_of[word]
            successors, predecessors = (side.by_class(word, class_of, classes) for side in (after, before))
            beside = _Beside(successors, predecessors, itself[word])
            beside.add_to(N, row, column, old, -1)
            gain = beside.gains(N, row, column)
            new = int(gain.argmax())
            # A gain within rounding error does not count: words could move in circles for ever.
            new = new if gain[new] > gain[old] + 1e-9 * abs(gain[old]) else old
            beside.add_to(N, row, column, new, 1)
            class_of[word] = new
            moved[-1] += int(new != old)
        if report is not None:
            report(len(moved), moved[-1])
    likelihood = _f(N).sum() - _f(row).sum() - _f(column).sum() + _f(np.bincount(tokens[1:]).astype(float)).sum()
    return WordClasses(class_of, N, float(likelihood), moved)


class _Neighbours(NamedTuple):
    """Other words on one side of each word, and their counts; those of word w start at starts[w]."""

    starts: np.ndarray
    words: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, beside: np.ndarray, size: int) -> "_Neighbours":
        """Counts the pairs of a token's word and the word beside it."""
        pairs, counts = np.unique(tokens.astype(np.int64) * size + beside, return_counts=True)
        return cls(np.searchsorted(pairs, np.arange(size + 1) * size), pairs % size, counts.astype(float))

    def by_class(self, word: int, class_of: np.ndarray, classes: int) -> np.ndarray:
        """Returns how often other words of every class are beside the word (C,)."""
        part = slice(*self.starts[word : word + 2])
        return np.bincount(class_of[self.words[part]], self.counts[part], minlength=classes)


class _Beside(NamedTuple):
    """Bigrams of one word: with classes of other words after it (C,), before it (C,), and with itself."""

    after: np.ndarray
    before: np.ndarray
    itself: float

    def add_to(self, N: np.ndarray, row: np.ndarray, column: np.ndarray, place: int, sign: int) -> None:
        """Adds the word to a class, or removes it with sign -1."""
        N[place] += sign * self.after
        N[:, place] += sign * self.before
        N[place, place] += sign * self.itself
        # The sums of other classes do not change: their words have as many successors and predecessors as before.
        row[place] += sign * (self.after.sum() + self.itself)
        column[place] += sign * (self.before.sum() + self.itself)

    def gains(self, N: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Returns log P, up to a constant, for every class that the word could join (C,)."""
        to, of = self.after.nonzero()[0], self.before.nonzero()[0]
        gain = (_f(N[:, to] + self.after[to]) - _f(N[:, to])).sum(1)
        gain += (_f(N[of] + self.before[of, None]) - _f(N[of])).sum(0)
        same = N.diagonal()
        gain += _f(same + self.after + self.before + self.itself) + _f(same)
        gain -= _f(same + self.after) + _f(same + self.before)
        gain -= _f(row + self.after.sum() + self.itself) - _f(row)
        gain -= _f(column + self.before.sum() + self.itself) - _f(column)
        return gain


def codes_of_classes(bigrams: np.ndarray) -> list[str]:
    """Returns every class's path in a binary tree, as bits from the root: 0 left, 1 right.

    Merges the two classes whose union lowers log P least, until one is left, in O(C^3) steps and O(C^2) memory.
    `bigrams` (C, C) counts the bigrams from class a to class b.

    Source: Brown et al. 1992, section 3 (the greedy algorithm's last C steps, and its update of the losses).
    """
    N = np.array(bigrams, float)
    size = len(N)
    codes = [""] * size
    members = [[number] for number in range(size)]
    # In a loop: all at once would need C^3 numbers.
    shared = sum((_of_third(N, third) for third in range(size)), np.zeros_like(N))
    for _ in range(size - 1):
        losses, gone = _losses(N, shared), [not member for member in members]
        losses[gone] = losses[:, gone] = np.inf
        one, two = divmod(int(losses.argmin()), size)
        for number, bit in ((one, "0"), (two, "1")):
            for member in members[number]:
                codes[member] = bit + codes[member]
        members[one] += members[two]
        members[two] = []
        shared -= _of_third(N, one) + _of_third(N, two)
        N[one] += N[two]
        N[:, one] += N[:, two]
        N[two] = N[:, two] = 0
        shared += _of_third(N, one)
        shared[one] = shared[:, one] = _loss(N[one], N).sum(1) + _loss(N[:, one], N.T).sum(1)
    return codes


def _losses(N: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Returns the loss of log P by merging a class and a later one, (C, C), from the sum of all ``_of_third``."""
    same = N.diagonal()
    # The pair's four cells become one cell, and not two cells of a row and two of a column.
    corner = _f(same) + _f(same)[:, None] + _f(N) + _f(N.T) - _f(same + same[:, None] + N + N.T)
    twice = _loss(same[:, None], N.T) + _loss(N, same) + _loss(same[:, None], N) + _loss(N.T, same)
    sums = sum(_loss(counts, counts[:, None]) for counts in (N.sum(1), N.sum(0)))
    losses = shared - twice + corner - sums
    losses[np.tril_indices(len(N))] = np.inf
    return losses


def _of_third(N: np.ndarray, third: int) -> np.ndarray:
    """Returns the loss of log P in bigrams with a third class by merging two classes, (C, C)."""
    return _loss(N[third], N[third][:, None]) + _loss(N[:, third], N[:, third][:, None])


def _loss(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns f(x) + f(y) - f(x + y), at most 0: log P gains it for bigrams, and loses it for sums."""
    return _f(x) + _f(y) - _f(x + y)


def _f(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.maximum(x, 1.0))
