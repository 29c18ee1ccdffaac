"""Ranks and Spearman's rho against restated definitions, and their laws."""

import math

import numpy as np
import pytest

from fairseq_tiedemb.vectors.ranks import interval, mean_ranks, spearman

from .common import exact_ranks, exact_spearman


@pytest.mark.parametrize("tied", [False, True])
def test_exact(tied: bool) -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.integers(0, 9, 60) if tied else rng.standard_normal(60) for _ in range(2))
    assert mean_ranks(first) == pytest.approx(exact_ranks(first), abs=0)
    assert spearman(first, second) == pytest.approx(exact_spearman(first, second), abs=1e-14)


def test_ties_have_the_mean_of_their_ranks() -> None:
    assert mean_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_a_rising_map_changes_nothing_and_a_falling_one_the_sign() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.standard_normal(50), rng.integers(0, 9, 50)
    rho = spearman(first, second)
    assert spearman(np.exp(3 * first), second**3) == rho
    assert spearman(-first, second) == -rho
    assert spearman(second, first) == rho
    assert spearman(first, first) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [2.0]), ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0])])
def test_nothing_to_rank(first: list[float], second: list[float]) -> None:
    assert math.isnan(spearman(first, second))


def test_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    draws = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], (1000, 60))
    true = 6 / math.pi * math.asin(0.6 / 2)  # Spearman's rho of a bivariate normal distribution
    bounds = [interval(spearman(*each.T), 60) for each in draws]
    assert 0.93 < np.mean([low < true < high for low, high in bounds]) < 0.97


def test_interval() -> None:
    low, high = interval(0.5, 103)
    assert np.arctanh(high) - np.arctanh(0.5) == pytest.approx(1.959964 * math.sqrt(1.125 / 100), abs=1e-7)
    assert np.arctanh(0.5) - np.arctanh(low) == pytest.approx(1.959964 * math.sqrt(1.125 / 100), abs=1e-7)
    unknown = (interval(0.5, 3), interval(math.nan, 50), interval(1.0, 50), interval(-1.0, 4))
    assert all(math.isnan(bound) for bounds in unknown for bound in bounds)
