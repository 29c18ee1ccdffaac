"""Pairs of sentences of a real corpus."""

import gzip

import pytest

from .shell import SHARED_DATA


def real_pairs(language: str, count: int) -> list[tuple[str, str]]:
    """Pairs of Tatoeba, spread over the whole file; the calling test is skipped where it is absent."""
    path = SHARED_DATA / f"tatoeba/{ {'de': 'deu', 'es': 'spa', 'ro': 'ron'}[language] }-eng.tsv.gz"
    if not path.exists():
        pytest.skip(f"Tatoeba is not at {path}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t")[:2] for line in file]
    return [(foreign, english) for english, foreign in rows[:: len(rows) // count][:count]]
