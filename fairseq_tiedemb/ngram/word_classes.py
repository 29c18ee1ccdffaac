"""Classes of words by what stands beside them: the class bigram model of largest likelihood, and a tree of its classes.

    p(w_t | w_{t-1}) = p(c_t | c_{t-1}) p(w_t | c_t)        c_t the class of w_t

By maximum likelihood, with N_ab the bigrams from class a to class b, N_a. and N_.b their sums, and f(x) = x log x,

    log P = sum_ab f(N_ab) - sum_a f(N_a.) - sum_b f(N_.b) + sum_w f(n_w)

of which the last sum has nothing to do with the classes. Source: Brown et al. 1992, section 3.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class WordClasses(NamedTuple):
    """What ``exchange`` found.

    Attributes:
        class_of: the class of each word (V,), 0 ... C - 1.
        bigrams: how often a word of class b follows one of class a, (C, C), float64.
        log_likelihood: log P of all words but the first, in nats.
        moved: words that changed their class in each round.
    """

    class_of: np.ndarray
    bigrams: np.ndarray
    log_likelihood: float
    moved: list[int]


def exchange(
    tokens: np.ndarray, size: int, classes: int, *, rounds: int, report: Callable[[int, int], None] | None = None
) -> WordClasses:
    """Puts words into classes: each in turn, the frequent first, moves to where log P is largest, until none does.

    A word's move costs C times the classes beside it, a round at most V C^2.

    Args:
        tokens: the text (N,), words 0 ... V - 1.
        size: V; words that do not occur stay where they start.
        classes: C; the word of rank r starts in class r mod C.
        rounds: how often the words have their turn at most.
        report: called after each round with its number, from 1, and how many words moved.

    Raises:
        ValueError: for fewer than two tokens, and for more classes than words that occur.

    Source: Kneser & Ney 1993; Martin, Liermann & Ney 1998, section 2.
    """
    counts = np.bincount(tokens, minlength=size)
    if len(tokens) < 2:
        raise ValueError(f"tokens: needs two words at least; got {len(tokens)}. Use a longer text.")
    if not 1 <= classes <= np.count_nonzero(counts):
        raise ValueError(
            f"classes: needs 1 to the number of words that occur, {np.count_nonzero(counts):,}; got {classes}. Use "
            "fewer."
        )
    after, before = (_Neighbours.of(*pair, size) for pair in ((tokens[:-1], tokens[1:]), (tokens[1:], tokens[:-1])))
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
            beside = _Beside(
                after.by_class(word, class_of, classes), before.by_class(word, class_of, classes), after.itself(word)
            )
            beside.add_to(N, row, column, old, -1)
            gain = beside.gains(N, row, column)
            new = int(gain.argmax())
            # Rounding moves no word, which could then go round for ever.
            new = new if gain[new] > gain[old] + 1e-9 * abs(gain[old]) else old
            beside.add_to(N, row, column, new, 1)
            class_of[word] = new
            moved[-1] += int(new != old)
        if report is not None:
            report(len(moved), moved[-1])
    likelihood = _f(N).sum() - _f(row).sum() - _f(column).sum() + _f(np.bincount(tokens[1:]).astype(float)).sum()
    return WordClasses(class_of, N, float(likelihood), moved)


class _Neighbours(NamedTuple):
    """On one side of each word the words beside it, and how often: those of word w from starts[w] to starts[w + 1]."""

    starts: np.ndarray
    words: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray, beside: np.ndarray, size: int) -> "_Neighbours":
        """Of each token's word, given what stands beside each token."""
        pairs, counts = np.unique(tokens.astype(np.int64) * size + beside, return_counts=True)
        return cls(np.searchsorted(pairs, np.arange(size + 1) * size), pairs % size, counts.astype(float))

    def itself(self, word: int) -> float:
        """How often the word is beside itself."""
        part = slice(*self.starts[word : word + 2])
        return float(self.counts[part][self.words[part] == word].sum())

    def by_class(self, word: int, class_of: np.ndarray, classes: int) -> np.ndarray:
        """How often other words of each class are beside the word (C,)."""
        part = slice(*self.starts[word : word + 2])
        found = np.bincount(class_of[self.words[part]], self.counts[part], minlength=classes)
        found[class_of[word]] -= self.itself(word)
        return found


class _Beside(NamedTuple):
    """Bigrams of one word with classes of other words behind it (C,), before it (C,), and with itself."""

    after: np.ndarray
    before: np.ndarray
    itself: float

    def add_to(self, N: np.ndarray, row: np.ndarray, column: np.ndarray, place: int, sign: int) -> None:
        """Puts the word into a class, or with sign -1 takes it out."""
        N[place] += sign * self.after
        N[:, place] += sign * self.before
        N[place, place] += sign * self.itself
        # The sums of other classes stay: their words are followed by as many words as before, and follow as many.
        row[place] += sign * (self.after.sum() + self.itself)
        column[place] += sign * (self.before.sum() + self.itself)

    def gains(self, N: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """By how much log P differs between the classes that the word could join (C,), up to a constant."""
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
    """The place of each class in a binary tree, as bits from the root down: 0 left, 1 right.

    The two classes whose union costs least of log P become one, until one is left. Takes C^3 steps, and C^2 numbers.

    Args:
        bigrams: how often a word of one class follows one of another, (C, C).

    Source: Brown et al. 1992, section 3 (the greedy algorithm's last C steps, and its update of the losses).
    """
    N = np.array(bigrams, float)
    size = len(N)
    codes = [""] * size
    members = [[number] for number in range(size)]
    # One after the other: all at once would be C^3 numbers.
    shared = sum((_of_third(N, third) for third in range(size)), np.zeros_like(N))
    for _ in range(size - 1):
        losses, gone = _losses(N, shared), [not each for each in members]
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
    """By how much log P falls where a class and a later one become one, (C, C); infinite elsewhere.

    Args:
        N: bigrams of the classes.
        shared: for each two classes the sum of ``_of_third`` over all classes, those two among them.
    """
    same = N.diagonal()
    # Their bigrams with themselves and each other become one, not two of a row and two of a column.
    corner = _f(same) + _f(same)[:, None] + _f(N) + _f(N.T) - _f(same + same[:, None] + N + N.T)
    twice = _loss(same[:, None], N.T) + _loss(N, same) + _loss(same[:, None], N) + _loss(N.T, same)
    sums = sum(_loss(each, each[:, None]) for each in (N.sum(1), N.sum(0)))
    losses = shared - twice + corner - sums
    losses[np.tril_indices(len(N))] = np.inf
    return losses


def _of_third(N: np.ndarray, third: int) -> np.ndarray:
    """What log P loses in bigrams with a third class where two classes become one, (C, C)."""
    return _loss(N[third], N[third][:, None]) + _loss(N[:, third], N[:, third][:, None])


def _loss(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What two counts lose by becoming one, 0 or less: of bigrams log P gains f of each, of sums it loses them."""
    return _f(x) + _f(y) - _f(x + y)


def _f(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.maximum(x, 1.0))
