"""Jelinek-Mercer smoothing: interpolation weights of the orders, estimated by EM on held-out text.

    P_n(w | h) = lambda_n(h) c(hw) / N_h + (1 - lambda_n(h)) P_{n-1}(w | h')     P_0 = 1 / W     lambda_n = 0 if N_h = 0

An order has one weight, or one per bucket floor(log2 N_h) of histories. EM computes for every held-out word the
probability that it came from order n (`r_n`), and from order n or below (`R_n`), and then sets

    lambda = (sum r_n + 1/2) / (sum R_n + 1)

over the words of a bucket. The 1/2 is a Beta(3/2, 3/2) prior, for buckets with few held-out words: a weight of 1 would
leave unseen words no probability. No round lowers log P of the text + 1/2 sum (log lambda + log(1 - lambda)).

Sources: Jelinek & Mercer 1980; Chen & Goodman 1999, section 2.3.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .counts import Level, look_up
from .fields import Indices, Reals
from .text import BOS

BUCKETS = 64
# EM stops when a round gains less than this, in nats per word.
SMALLEST_GAIN = 1e-7
MOST_ROUNDS = 500


def bucket(totals: Reals, count: int) -> Indices:
    """Returns floor(log2 N_h), 0 where N_h is 0, or the last of `count` buckets: 0 for all histories of one weight."""
    return np.minimum(np.frexp(np.maximum(totals, 1))[1].astype(np.int64) - 1, count - 1)


class Seen(NamedTuple):
    """One order's statistics of the M held-out words: c(hw) / N_h (0 if N_h is 0), N_h, and the bucket of h."""

    ratios: Reals
    totals: Reals
    buckets: Indices


def held_out_counts(levels: Sequence[Level], held_out: NDArray[np.int32], size: int, buckets: int) -> list[Seen]:
    """Looks a text up in the counts, order by order; `buckets` is their number."""
    predicted = held_out != BOS
    counts, totals = np.zeros((2, len(levels), len(held_out)))
    counts[0] += levels[0].counts[held_out]
    totals[0] += levels[0].counts.sum()
    for n, match in enumerate(look_up([level.keys for level in levels], held_out, size), start=2):
        level, contexts = levels[n - 1], len(levels[n - 2].keys)
        all_totals = np.bincount(level.keys // size, weights=level.counts, minlength=contexts)
        totals[n - 1][match.ends] = all_totals[match.histories]
        counts[n - 1][match.ends[match.seen]] = level.counts[match.ids]
    return [
        Seen(count / np.maximum(total, 1), total, bucket(total, buckets))
        for count, total in zip(counts[:, predicted], totals[:, predicted], strict=True)
    ]


def estimate_weights(
    levels: Sequence[Level], held_out: NDArray[np.int32], size: int, *, by_count: bool
) -> tuple[tuple[Reals, ...], list[float]]:
    """Estimates lambda of every order by EM, from plain counts; `by_count` is for one weight per bucket of histories.

    `held_out` (N,) is the text, with BOS and EOS around every sentence, and `size` the number of indices. Returns the
    weights of every order, by bucket or one, and the objective, which never falls, after 0, 1, 2, ... rounds.
    """
    weights = tuple(np.full(BUCKETS if by_count else 1, 0.5) for _ in levels)
    orders = held_out_counts(levels, held_out, size, len(weights[0]))
    trace: list[float] = []
    while True:
        better, goal = _round(orders, weights, np.full(len(orders[0].ratios), 1 / (size - 1)))
        trace.append(goal)
        if len(trace) > MOST_ROUNDS or (len(trace) > 1 and goal - trace[-2] < SMALLEST_GAIN * len(orders[0].ratios)):
            return weights, trace
        weights = better


def _round(orders: list[Seen], weights: tuple[Reals, ...], uniform: Reals) -> tuple[tuple[Reals, ...], float]:
    """Returns the weights after a round of EM, and the objective of the weights before it."""
    used = [np.where(seen.totals > 0, own[seen.buckets], 0.0) for seen, own in zip(orders, weights, strict=True)]
    probs = [uniform]
    for seen, weight in zip(orders, used, strict=True):
        probs.append(weight * seen.ratios + (1 - weight) * probs[-1])
    prior = sum(float(np.log(weight * (1 - weight)).sum()) / 2 for weight in weights)
    better: list[Reals] = []
    above = 1 / probs[-1]  # probability of backing off below order n, divided by that of the word
    for n in reversed(range(len(orders))):
        seen = orders[n]
        from_here = above * used[n] * seen.ratios
        from_here_or_below = np.where(seen.totals > 0, above * probs[n + 1], 0.0)
        here, all_ = (np.bincount(seen.buckets, part, len(weights[n])) for part in (from_here, from_here_or_below))
        better.insert(0, (here + 0.5) / (all_ + 1))
        above = above * (1 - used[n])
    return tuple(better), float(np.log(probs[-1]).sum()) + prior
