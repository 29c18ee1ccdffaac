"""Spearman's rank correlation with ties, and its confidence interval."""

import math
from collections.abc import Sequence

import numpy as np

NORMAL_95 = 1.959963984540054  # two-sided


def spearman(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> float:
    """Computes Pearson's correlation of the mean ranks; nan for fewer than two values, or if all are equal."""
    from scipy.stats import rankdata  # which takes a moment to import

    ranks = [rankdata(values) for values in (first, second)]
    a, b = (rank - (len(rank) + 1) / 2 for rank in ranks)
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else math.nan


def interval(rho: float, count: int) -> tuple[float, float]:
    """Computes the 95% confidence interval of Spearman's rho: tanh(atanh rho -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3))).

    It is nan for rho -1 and 1, where Fisher's z is infinite, and for fewer than 4 pairs of values (`count`, n).

    Source: Bonett & Wright 2000, Psychometrika 65, eq. 6 (Fisher's z with the variance of ranks).
    """
    if math.isnan(rho) or abs(rho) >= 1 or count < 4:
        return math.nan, math.nan
    half = NORMAL_95 * math.sqrt((1 + rho**2 / 2) / (count - 3))
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)
