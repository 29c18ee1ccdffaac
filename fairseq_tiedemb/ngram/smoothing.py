"""Smoothing methods: what each takes off the counts, and how that is shared among the words that were not seen.

With c(hw) the count of an n-gram of history h and word w, N_h = sum_v c(hv) and T_h the number of different words after
h, every method is a discount delta(hw), of a count, and one of two forms:

    interpolated   p(w | h) = (c(hw) - delta(hw)) / N_h + gamma(h) p(w | h'),   gamma(h) = sum_v delta(hv) / N_h
    back-off       p(w | h) = (c(hw) - delta(hw)) / N_h  if w is left with something of its count after h, else
                   p(w | h) = gamma(h) p(w | h'),   gamma(h) = (sum_v delta(hv) / N_h) / sum_{v with nothing} p(v | h')

    h' is h without its first word, p(w | h') = 1 / W below order 1, and p(w | h) = p(w | h') if h was not seen.

    jelinek-mercer        delta = (1 - lambda(h)) c                    weights lambda: ``jelinek_mercer.py``
    katz                  delta = (1 - d_c) c                          d_1 ... d_k: ``good_turing``
    witten-bell           delta = c T_h / (N_h + T_h)
    absolute              delta = D, D = n_1 / (n_1 + 2 n_2)           n_r: number of n-grams of the order of count r
    kneser-ney            the same with a(hw) of ``count_ngrams`` for c below the highest order
    modified-kneser-ney   delta = D(1), D(2) or D(3 and more), by a(hw)

An n-gram that is cut off loses its whole count, delta = c: N_h keeps it, and gamma(h) hands it on.

Sources: Chen & Goodman, An empirical study of smoothing techniques for language modeling, Computer Speech and Language
13, 1999, sections 2 and 3; Katz 1987; Witten & Bell 1991, method C; Ney, Essen & Kneser 1994; Kneser & Ney 1995.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .counts import Indices
from .jelinek_mercer import Weights

Reals = NDArray[np.float64]

# Where the counts do not determine the discounts; lmplz's --discount_fallback takes the same.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# Below this the words that were not seen after a history have no probability but rounding errors.
SMALLEST_ROOM = 1e-9


@dataclass(frozen=True)
class Counted:
    """What a method sees of one order n.

    Attributes:
        n: the order.
        counts: (G,), c(hw), of words that were not seen too (0) at n = 1.
        histories: (G,), which (n-1)-gram h is.
        totals: N_h, for each (n-1)-gram.
        words: W, the number of words that can be predicted.
    """

    n: int
    counts: Indices
    histories: Indices
    totals: Reals
    words: int

    @property
    def all_seen(self) -> bool:
        """Whether every word was seen, so that unigrams have nobody to leave anything to."""
        return self.n == 1 and np.count_nonzero(self.counts) == self.words


@dataclass(frozen=True)
class Options:
    """What some methods need besides the counts.

    Attributes:
        katz_k: counts above k are not discounted.
        weights: lambda of each order, of ``jelinek-mercer``.
    """

    katz_k: int = 7
    weights: tuple[Weights, ...] = ()


@dataclass(frozen=True)
class Discounts:
    """What a method takes off the counts of one order.

    Attributes:
        taken: (G,), delta(hw).
        values: the numbers that determine it, D or d_r; none for some methods.
        estimated: whether the counts determine all of them.
    """

    taken: NDArray[np.floating]
    values: tuple[float, ...] = ()
    estimated: bool = True


def counts_of_counts(counts: Indices, highest: int) -> list[int]:
    """n_0 ... n_highest, where n_r is the number of n-grams whose count is r."""
    return np.bincount(np.minimum(counts, highest + 1), minlength=highest + 2)[: highest + 1].tolist()


def discounts(counts: Indices) -> tuple[float, float, float] | None:
    """The discounts D(1), D(2), D(3 and more) of one order, from n_k, the number of its n-grams whose count is k.

        Y = n_1 / (n_1 + 2 n_2)     D(k) = k - (k + 1) Y n_{k+1} / n_k

    Returns:
        The discounts, or None if they are undefined or useless: one of n_1 ... n_4 is zero, or a discount is not
        positive.

    Source: Chen & Goodman 1999, equation 26.
    """
    _, n1, n2, n3, n4 = counts_of_counts(counts, 4)
    if min(n1, n2, n3, n4) == 0:
        return None
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if min(found) > 0 else None


def good_turing(counts: Indices, k: int) -> list[float | None]:
    """Katz's ratios d_1 ... d_k, what is left of a count of r.

        d_r = ((r + 1) n_{r+1} / (r n_r) - a) / (1 - a)     a = (k + 1) n_{k+1} / n_1     d_r = 1 for r > k

    Returns:
        The ratios; None for one that is undefined or outside of (0, 1], as of counts that follow no Zipf curve.

    Source: Katz 1987, equation 15; Chen & Goodman 1999, section 2.4.
    """
    numbers = counts_of_counts(counts, k + 1)
    if numbers[1] == 0 or (a := (k + 1) * numbers[k + 1] / numbers[1]) >= 1:
        return [None] * k
    found: list[float | None] = []
    for r in range(1, k + 1):
        ratio = ((r + 1) * numbers[r + 1] / (r * numbers[r]) - a) / (1 - a) if numbers[r] else 0.0
        found.append(ratio if 0 < ratio <= 1 else None)
    return found


def jelinek_mercer(order: Counted, options: Options) -> Discounts:
    """delta = (1 - lambda(h)) c."""
    weights = options.weights[order.n - 1].of(order.totals)
    return Discounts((1 - weights)[order.histories] * order.counts)


def katz(order: Counted, options: Options) -> Discounts:
    """delta = (1 - d_c) c. What is undefined is 1, and so are all ratios of unigrams if no word is left to be seen."""
    if order.all_seen:
        return Discounts(np.zeros(len(order.counts)))
    found = good_turing(order.counts, options.katz_k)
    ratios = tuple(1.0 if ratio is None else ratio for ratio in found)
    taken = 1 - np.array((1.0, *ratios, 1.0))[np.minimum(order.counts, options.katz_k + 1)]
    return Discounts(taken * order.counts, ratios, None not in found)


def witten_bell(order: Counted, options: Options) -> Discounts:
    """delta = c T_h / (N_h + T_h)."""
    types = np.bincount(order.histories, weights=order.counts > 0, minlength=len(order.totals))
    share = np.divide(types, order.totals + types, out=np.zeros(len(types)), where=types > 0)
    return Discounts(share[order.histories] * order.counts)


def absolute(order: Counted, options: Options) -> Discounts:
    """delta = D = n_1 / (n_1 + 2 n_2), or 0.5 if n_1 or n_2 is zero."""
    _, n1, n2 = counts_of_counts(order.counts, 2)
    estimated = min(n1, n2) > 0
    discount = n1 / (n1 + 2 * n2) if estimated else FALLBACK_DISCOUNTS[0]
    return Discounts(discount * (order.counts > 0), (discount,), estimated)


def three_discounts(order: Counted, options: Options) -> Discounts:
    """delta = D(1), D(2) or D(3 and more), or FALLBACK_DISCOUNTS if the counts do not determine them."""
    found = discounts(order.counts)
    values = found or FALLBACK_DISCOUNTS
    return Discounts(np.array((0.0, *values))[np.minimum(order.counts, 3)], values, found is not None)


INTERPOLATED, BACK_OFF = "interpolated", "back-off"


@dataclass(frozen=True)
class Smoothing:
    """A method.

    Attributes:
        title: what it is called in print.
        discounts: what it takes off the counts of an order.
        continuation: whether lower orders have continuation counts.
        forms: those that it has, the usual one first.
        cutoff: what an n-gram of order 1, 2, ... must count not to be cut off, unless asked for otherwise; the last
            number holds for higher orders too.
        needs_held_out: whether its weights are estimated on text of their own.
    """

    title: str
    discounts: Callable[[Counted, Options], Discounts]
    continuation: bool = False
    forms: tuple[str, ...] = (INTERPOLATED, BACK_OFF)
    cutoff: tuple[int, ...] = (1,)
    needs_held_out: bool = False


SMOOTHINGS = {
    "jelinek-mercer": Smoothing("Jelinek-Mercer", jelinek_mercer, forms=(INTERPOLATED,), needs_held_out=True),
    # SRILM's defaults, which the published perplexities of Katz smoothing come from.
    "katz": Smoothing("Katz", katz, forms=(BACK_OFF,), cutoff=(1, 1, 2)),
    "witten-bell": Smoothing("Witten-Bell", witten_bell),
    "absolute": Smoothing("absolute discounting", absolute),
    "kneser-ney": Smoothing("Kneser-Ney", absolute, continuation=True),
    "modified-kneser-ney": Smoothing("modified Kneser-Ney", three_discounts, continuation=True),
}


def interpolate(order: Counted, taken: NDArray[np.floating], lower: Reals) -> tuple[Reals, Reals]:
    """The interpolated form.

    Args:
        order: the counts.
        taken: delta(hw), (G,).
        lower: p(w | h') of the n-grams, (G,).

    Returns:
        p(w | h) of the n-grams, (G,), and gamma(h) of the histories.
    """
    totals = order.totals
    backoff = np.ones(len(totals))
    freed = np.bincount(order.histories, weights=taken, minlength=len(totals))
    np.divide(freed, totals, out=backoff, where=totals > 0)
    return (order.counts - taken) / totals[order.histories] + backoff[order.histories] * lower, backoff


def back_off(order: Counted, taken: NDArray[np.floating], lower: Reals) -> tuple[Reals, Reals]:
    """The back-off form; for arguments and result see ``interpolate``.

    A history that has nothing taken off would leave no probability to other words: its N_h is one more, as in SRILM.
    After a history that every word was seen after there is no other word: it has the interpolated form.
    """
    histories, totals = order.histories, order.totals
    own = order.counts - taken
    keeps = own > 0
    room = 1 - np.bincount(histories, weights=lower * keeps, minlength=len(totals))
    freed = np.bincount(histories, weights=taken, minlength=len(totals))
    has_room, seen = room > SMALLEST_ROOM, totals > 0
    extra = (has_room & seen & (freed == 0)).astype(np.float64)
    backoff = np.ones(len(totals))
    np.divide(freed + extra, totals + extra, out=backoff, where=seen)
    np.divide(backoff, room, out=backoff, where=seen & has_room)
    shared = np.where(keeps & has_room[histories], 0.0, backoff[histories] * lower)
    return own / (totals + extra)[histories] + shared, backoff


FORMS = {INTERPOLATED: interpolate, BACK_OFF: back_off}
