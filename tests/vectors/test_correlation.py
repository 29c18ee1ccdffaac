"""Correlation of all pairs' cosines: equal to the exact one, whatever the block, and its laws."""

import math
from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb.vectors import correlation
from fairseq_tiedemb.vectors.correlation import cosine_correlation
from fairseq_tiedemb.vectors.word_table import unit_rows

from ..conftest import Cli
from .common import command, exact_pairwise, exact_spearman, random_table, table, write_text


@pytest.fixture
def _few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cosines are rounded to fewer values, for so few pairs enough, than take half a second to count."""
    monkeypatch.setattr(correlation, "STEPS", 2**17)
    monkeypatch.setattr(correlation, "VALUES", 2**18 + 1)


def rows(count: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def related(count: int = 90) -> list[np.ndarray]:
    """Three tables of two widths that have something in common."""
    first = rows(count, 12, 1)
    return [first, first + 0.8 * rows(count, 12, 2), first[:, :7] + 0.5 * rows(count, 7, 3)]


def test_equal_to_the_exact_one_in_small_blocks() -> None:
    tables = related()
    cosines = [exact_pairwise(each) for each in tables]
    exact = [exact_spearman(cosines[i], cosines[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    found = cosine_correlation([unit_rows(each) for each in tables], block=3000)
    assert np.array_equal(found, found.T)
    assert (found.diagonal() == 1.0).all()
    assert [found[0, 1], found[0, 2], found[1, 2]] == pytest.approx(exact, abs=1e-6)


def test_ties_and_cosines_that_are_all_near_one() -> None:
    # Cosines are 0, 1, -1, 1/2 and -1/2, many times each.
    signs = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], (60, 3)).astype(np.float32)
    signs = signs[np.abs(signs).sum(1) == 2]
    near = 1 + 0.2 * rows(80, 20, 1)
    for first, second in ((signs, rows(len(signs), 5, 2)), (near, near + 0.2 * rows(80, 20, 2))):
        found = cosine_correlation([unit_rows(first), unit_rows(second)])[0, 1]
        exact = exact_spearman(np.round(exact_pairwise(first), 9), exact_pairwise(second))
        assert found == pytest.approx(exact, abs=1e-6)


@pytest.mark.usefixtures("_few_values")
def test_few_words_or_nothing_to_correlate() -> None:
    few = [unit_rows(each) for each in related(4)]
    assert np.array_equal(cosine_correlation(few, block=1), cosine_correlation(few))
    assert np.isnan(cosine_correlation([np.ones((1, 2), np.float32)] * 2)).all()
    same = unit_rows(np.ones((5, 2), np.float32))
    assert math.isnan(cosine_correlation([same, unit_rows(rows(5, 2, 1))])[0, 1])


@pytest.mark.usefixtures("_few_values")
def test_words_are_matched_by_name(tmp_path: Path, cli: Cli) -> None:
    first, second = random_table(30, 6), random_table(30, 6, seed=2)
    second = table(second.words, second.rows_VD + 2 * first.rows_VD)
    order = np.random.default_rng(1).permutation(30)
    write_text(tmp_path / "a.vec", first.words, first.rows_VD)
    words = [*(second.words[row] for row in order), "more"]
    write_text(tmp_path / "b.vec", words, [*second.rows_VD[order], np.ones(6)])
    printed = cli("correlation", tmp_path / "a.vec", tmp_path / "b.vec").out.splitlines()
    assert printed[2] == "30 words, 435 pairs"
    exact = exact_spearman(exact_pairwise(first.rows_VD), exact_pairwise(second.rows_VD))
    assert printed[-1] == f"[1]  {exact:.3f}"
    out = cli("correlation", tmp_path / "a.vec", tmp_path / "b.vec", "--most-frequent", "9").out
    exact = exact_spearman(exact_pairwise(first.rows_VD[:9]), exact_pairwise(second.rows_VD[:9]))
    assert out.splitlines()[-1] == f"[1]  {exact:.3f}"


def test_refusals(tmp_path: Path) -> None:
    a = write_text(tmp_path / "a.vec", ["x", "y"], np.ones((2, 2)))
    for arguments, message in (
        ([a], "TABLE: needs 2 at least; got 1, .*a.vec"),
        ([a, a], "TABLE: needs tables with 3 words in common; got 2 for .*a.vec"),
        ([a, a, "--most-frequent", "1"], "--most-frequent: needs tables with 3 words in common; got 1 for .*a.vec"),
    ):
        with pytest.raises(ValueError, match=message):
            command("correlation", *arguments)
