"""Kneser-Ney 5-grams of a text as large as text8: CPU seconds and peak memory of the whole command.

The words are drawn by a Zipf law, one by one, so that nearly every 5-gram is a new one: harder than a text that
somebody wrote. No other implementation is among the dependencies to stand beside it.
"""

import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# What the file text8 has.
TOKENS, TYPES = 17_005_207, 253_854


@pytest.mark.benchmark
def test_five_grams_of_a_text_like_text8(tmp_path: Path) -> None:
    frequencies = 1 / np.arange(1, TYPES + 1)
    numbers = np.random.default_rng(1).choice(TYPES, TOKENS, p=frequencies / frequencies.sum())
    words = [f"w{number}" for number in numbers.tolist()]
    text, test = tmp_path / "train.txt", tmp_path / "test.txt"
    text.write_text(" ".join(words))  # one line, as text8 is
    test.write_text(" ".join(words[:100_000]))
    del words

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "fairseq_tiedemb.cli", "ngram", text, "--test", test]
    found = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    assert re.search(rf"{TOKENS + 1:,} tokens", found.stdout + found.stderr)
    print(f"\n{found.stdout}{seconds:.0f} CPU seconds, {used.ru_maxrss / 2**20:.1f} GB")
