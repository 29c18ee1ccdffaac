"""Ranks and Spearman's rho against restated definitions, and their laws."""

import math

import numpy as np
import pytest

from fairseq_tiedemb.vectors.similarity import interval, spearman

from .common import exact_spearman


@pytest.mark.parametrize("tied", [False, True])
def test_exact(tied: bool) -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.integers(0, 9, 60) if tied else rng.standard_normal(60) for _ in range(2))
    rho = spearman(first, second)
    assert rho == pytest.approx(exact_spearman(first, second), abs=1e-14)
    # A rising map changes nothing, and a falling one the sign.
    assert spearman(np.exp(3.0 * first), second**3) == spearman(second, first) == -spearman(-first, second) == rho
    assert spearman(first, first) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [2.0]), ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0])])
def test_nothing_to_rank(first: list[float], second: list[float]) -> None:
    assert math.isnan(spearman(first, second))


def test_interval() -> None:
    low, high = interval(0.5, 103)
    assert np.arctanh(high) - np.arctanh(0.5) == pytest.approx(1.959964 * math.sqrt(1.125 / 100), abs=1e-7)
    assert np.arctanh(0.5) - np.arctanh(low) == pytest.approx(1.959964 * math.sqrt(1.125 / 100), abs=1e-7)
    unknown = (interval(0.5, 3), interval(math.nan, 50), interval(1.0, 50), interval(-1.0, 4))
    assert all(math.isnan(bound) for bounds in unknown for bound in bounds)
