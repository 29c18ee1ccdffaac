"""Smoothing methods: how much they discount counts, and how the freed probability is shared among unseen words.

With c(hw) the count of an n-gram of history h and word w, N_h = sum_v c(hv) and T_h the number of different words after
h, every method is a discount delta(hw), of a count, and one of two forms:

    interpolated   p(w | h) = (c(hw) - delta(hw)) / N_h + gamma(h) p(w | h'),   gamma(h) = sum_v delta(hv) / N_h
    back-off       p(w | h) = (c(hw) - delta(hw)) / N_h  if c(hw) > delta(hw), else
                   p(w | h) = gamma(h) p(w | h'),   gamma(h) = (sum_v delta(hv) / N_h) / sum_{v: c = delta} p(v | h')

    h' is h without its first word, p(w | h') = 1 / W below order 1, and p(w | h) = p(w | h') if h was not seen.

    jelinek-mercer        delta = (1 - lambda(h)) c                    weights lambda: ``jelinek_mercer.py``
    katz                  delta = (1 - d_c) c                          d_1 ... d_k: ``good_turing``
    witten-bell           delta = c T_h / (N_h + T_h)
    absolute              delta = D, D = n_1 / (n_1 + 2 n_2)           n_r: number of n-grams of the order of count r
    kneser-ney            the same with a(hw) of ``count_ngrams`` for c below the highest order
    modified-kneser-ney   delta = D(1), D(2) or D(3 and more), by a(hw)

An n-gram below the cutoff has delta = c: N_h keeps its count, and gamma(h) redistributes it.

Sources: Chen & Goodman, An empirical study of smoothing techniques for language modeling, Computer Speech and Language
13, 1999, sections 2 and 3; Katz 1987; Witten & Bell 1991, method C; Ney, Essen & Kneser 1994; Kneser & Ney 1995.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .fields import Indices, Reals
from .jelinek_mercer import bucket

# Used where counts do not determine the discounts; the values of lmplz's --discount_fallback.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)
# A smaller probability of the unseen words after a history is rounding error.
SMALLEST_ROOM = 1e-9


class Counted(NamedTuple):
    """The counts of one order n, as a method sees them, and the parameters of methods."""

    n: int
    counts: Indices  # (G,), c(hw); at n = 1 including words with count 0
    histories: Indices  # (G,), index of h among the (n-1)-grams
    totals: Reals  # N_h of all (n-1)-grams
    words: int  # W, the number of words that can be predicted
    katz_k: int  # ``katz`` does not discount counts above it
    weights: tuple[Reals, ...]  # Jelinek-Mercer's lambda, by order; empty for other methods


class Discounts(NamedTuple):
    """The discounts of one order's counts."""

    taken: NDArray[np.floating]  # (G,), delta(hw)
    values: tuple[float, ...] = ()  # the parameters D or d_r; empty for some methods
    estimated: bool = True  # whether the counts determine all parameters


def counts_of_counts(counts: Indices, highest: int) -> list[int]:
    """Returns n_0 ... n_highest, where n_r is the number of n-grams with count r."""
    return np.bincount(np.minimum(counts, highest + 1), minlength=highest + 2)[: highest + 1].tolist()


def discounts(counts: Indices) -> tuple[float, float, float] | None:
    """Returns modified Kneser-Ney's discounts D(1), D(2), D(3 and more); n_k is the number of n-grams with count k.

        Y = n_1 / (n_1 + 2 n_2)     D(k) = k - (k + 1) Y n_{k+1} / n_k

    The result is None if one of n_1 ... n_4 is zero, or a discount is not positive.

    Source: Chen & Goodman 1999, equation 26.
    """
    _, n1, n2, n3, n4 = counts_of_counts(counts, 4)
    if min(n1, n2, n3, n4) == 0:
        return None
    y = n1 / (n1 + 2 * n2)
    values = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return values if min(values) > 0 else None


def good_turing(counts: Indices, k: int) -> list[float | None]:
    """Returns Katz's ratios d_1 ... d_k: the discounted count, divided by the count r.

        d_r = ((r + 1) n_{r+1} / (r n_r) - a) / (1 - a)     a = (k + 1) n_{k+1} / n_1     d_r = 1 for r > k

    A ratio is None if undefined or outside (0, 1], as happens for counts that follow no Zipf curve.

    Source: Katz 1987, equation 15; Chen & Goodman 1999, section 2.4.
    """
    numbers = counts_of_counts(counts, k + 1)
    if numbers[1] == 0 or (a := (k + 1) * numbers[k + 1] / numbers[1]) >= 1:
        return [None] * k
    ratios: list[float | None] = []
    for r in range(1, k + 1):
        ratio = ((r + 1) * numbers[r + 1] / (r * numbers[r]) - a) / (1 - a) if numbers[r] else 0.0
        ratios.append(ratio if 0 < ratio <= 1 else None)
    return ratios


def jelinek_mercer(order: Counted) -> Discounts:
    """delta = (1 - lambda(h)) c."""
    weights = order.weights[order.n - 1]
    own = np.where(order.totals > 0, weights[bucket(order.totals, len(weights))], 0.0)
    return Discounts((1 - own)[order.histories] * order.counts)


def katz(order: Counted) -> Discounts:
    """delta = (1 - d_c) c, with 1 for undefined ratios; delta = 0 for unigrams if every word was seen."""
    if order.n == 1 and np.count_nonzero(order.counts) == order.words:
        return Discounts(np.zeros(len(order.counts)))
    estimates = good_turing(order.counts, order.katz_k)
    ratios = tuple(1.0 if ratio is None else ratio for ratio in estimates)
    taken = 1 - np.array((1.0, *ratios, 1.0))[np.minimum(order.counts, order.katz_k + 1)]
    return Discounts(taken * order.counts, ratios, None not in estimates)


def witten_bell(order: Counted) -> Discounts:
    """delta = c T_h / (N_h + T_h)."""
    types = np.bincount(order.histories, weights=order.counts > 0, minlength=len(order.totals))
    share = np.divide(types, order.totals + types, out=np.zeros(len(types)), where=types > 0)
    return Discounts(share[order.histories] * order.counts)


def absolute(order: Counted) -> Discounts:
    """delta = D = n_1 / (n_1 + 2 n_2), or 0.5 if n_1 or n_2 is zero."""
    _, n1, n2 = counts_of_counts(order.counts, 2)
    estimated = min(n1, n2) > 0
    discount = n1 / (n1 + 2 * n2) if estimated else FALLBACK_DISCOUNTS[0]
    return Discounts(discount * (order.counts > 0), (discount,), estimated)


def three_discounts(order: Counted) -> Discounts:
    """delta = D(1), D(2) or D(3 and more), or FALLBACK_DISCOUNTS if the counts do not determine them."""
    estimates = discounts(order.counts)
    values = estimates or FALLBACK_DISCOUNTS
    return Discounts(np.array((0.0, *values))[np.minimum(order.counts, 3)], values, estimates is not None)


INTERPOLATED, BACK_OFF = "interpolated", "back-off"


class Smoothing(NamedTuple):
    """A smoothing method."""

    title: str  # name in print
    discounts: Callable[[Counted], Discounts]  # of an order
    continuation: bool = False  # whether lower orders use continuation counts
    forms: tuple[str, ...] = (INTERPOLATED, BACK_OFF)  # its possible forms, the default first
    # Default minimum counts of n-grams of order 1, 2, ...; the last holds for higher orders too.
    cutoff: tuple[int, ...] = (1,)
    needs_held_out: bool = False  # whether its weights need held-out text


SMOOTHINGS = {
    "jelinek-mercer": Smoothing("Jelinek-Mercer", jelinek_mercer, forms=(INTERPOLATED,), needs_held_out=True),
    # SRILM's default cutoffs, with which perplexities of Katz smoothing are published.
    "katz": Smoothing("Katz", katz, forms=(BACK_OFF,), cutoff=(1, 1, 2)),
    "witten-bell": Smoothing("Witten-Bell", witten_bell),
    "absolute": Smoothing("absolute discounting", absolute),
    "kneser-ney": Smoothing("Kneser-Ney", absolute, continuation=True),
    "modified-kneser-ney": Smoothing("modified Kneser-Ney", three_discounts, continuation=True),
}


def interpolate(order: Counted, taken: NDArray[np.floating], lower: Reals) -> tuple[Reals, Reals]:
    """The interpolated form: returns p(w | h) of the n-grams (G,), and gamma(h) of the histories.

    `taken` is delta(hw) (G,), and `lower` is p(w | h') (G,).
    """
    totals = order.totals
    freed = np.bincount(order.histories, weights=taken, minlength=len(totals))
    backoff = np.divide(freed, totals, out=np.ones(len(totals)), where=totals > 0)
    return (order.counts - taken) / totals[order.histories] + backoff[order.histories] * lower, backoff


def back_off(order: Counted, taken: NDArray[np.floating], lower: Reals) -> tuple[Reals, Reals]:
    """The back-off form; for arguments and result see ``interpolate``.

    If no count of a history is discounted, N_h is one more, as in SRILM, so that unseen words keep a probability. If
    every word was seen after a history, the history has the interpolated form.
    """
    histories, totals = order.histories, order.totals
    own = order.counts - taken
    keeps = own > 0
    room = 1 - np.bincount(histories, weights=lower * keeps, minlength=len(totals))
    freed = np.bincount(histories, weights=taken, minlength=len(totals))
    has_room, seen = room > SMALLEST_ROOM, totals > 0
    extra = (has_room & seen & (freed == 0)).astype(np.float64)
    backoff = np.divide(freed + extra, totals + extra, out=np.ones(len(totals)), where=seen)
    np.divide(backoff, room, out=backoff, where=seen & has_room)
    shared = np.where(keeps & has_room[histories], 0.0, backoff[histories] * lower)
    return own / (totals + extra)[histories] + shared, backoff


FORMS = {INTERPOLATED: interpolate, BACK_OFF: back_off}
