"""Kneser-Ney 5-grams: a text as large as text8 through the whole command, and KenLM's query of the same ARPA file.

The words are drawn by a Zipf law, one by one, so that nearly every 5-gram is a new one: harder than a text that
somebody wrote. KenLM's wheel asks models and makes none, so it stands beside reading and asking alone. What limits us
there is numpy's passes over the bytes of the file, of which it makes some 40, and the memory that a search for an
n-gram goes through.
"""

import math
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb.ngram import BackoffModel

from .conftest import Record
from .interleave import interleave, ratio

# What the file text8 has.
TOKENS, TYPES = 17_005_207, 253_854


def zipf_words(tokens: int, types: int) -> list[str]:
    frequencies = 1 / np.arange(1, types + 1)
    numbers = np.random.default_rng(1).choice(types, tokens, p=frequencies / frequencies.sum())
    return [f"w{number}" for number in numbers.tolist()]


def run_ngram(*arguments: object) -> tuple[str, float, float]:
    """What `fairseq-tiedemb ngram` printed, its CPU seconds, and the largest memory of a command so far in GB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", "ngram", *map(str, arguments)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return found.stdout + found.stderr, seconds, used.ru_maxrss / 2**20


@pytest.mark.benchmark
def test_five_grams_of_a_text_like_text8(tmp_path: Path) -> None:
    words = zipf_words(TOKENS, TYPES)
    text, test = tmp_path / "train.txt", tmp_path / "test.txt"
    text.write_text(" ".join(words))  # one line, as text8 is
    test.write_text(" ".join(words[:100_000]))
    del words

    printed, seconds, memory = run_ngram(text, "--test", test)
    assert re.search(rf"{TOKENS + 1:,} tokens", printed)
    print(f"{printed}{seconds:.0f} CPU seconds, {memory:.1f} GB")


@pytest.mark.benchmark
def test_query_beside_kenlm(tmp_path: Path, record: Record) -> None:
    kenlm = pytest.importorskip("kenlm", reason="KenLM is not installed: pip install kenlm")
    words = zipf_words(500_000, 20_000)
    lines = [" ".join(words[first : first + 20]) for first in range(0, len(words), 20)]
    train, test, arpa = (tmp_path / name for name in ("train.txt", "test.txt", "model.arpa"))
    train.write_text("\n".join(lines))
    test.write_text("\n".join(lines[:5_000]))
    run_ngram(train, "--arpa", arpa)
    vocabulary, ours = BackoffModel.read_arpa(arpa, flag="ARPA")
    theirs = kenlm.Model(str(arpa))

    def ask_ours() -> float:
        return float(ours.log_probabilities(vocabulary.read([test], flag="TEST")).sum()) / math.log(10)

    def ask_theirs() -> float:
        return sum(theirs.score(line.rstrip("\n")) for line in test.open())

    assert ask_ours() == pytest.approx(ask_theirs(), rel=1e-5)
    seconds = interleave(
        {
            "read, ours": lambda: BackoffModel.read_arpa(arpa, flag="ARPA"),
            "read, KenLM": lambda: kenlm.Model(str(arpa)),
            "ask, ours": ask_ours,
            "ask, KenLM": ask_theirs,
        },
        rounds=3,
    )
    predicted = 5_000 * (20 + 1)
    print(
        f"5-grams of {len(words):,} words, ARPA file of {arpa.stat().st_size / 1e6:.0f} MB, {predicted:,} words asked"
    )
    for name, times in seconds.items():
        print(f"  {name:12s} {statistics.median(times):7.2f} CPU s")
    for what in ("read", "ask"):
        over = ratio(seconds, f"{what}, KenLM", f"{what}, ours")
        print(f"  {what}: KenLM's time over ours {over}")
        record("speed-lm", f"kenlm,{what}", {"ratio": over})
