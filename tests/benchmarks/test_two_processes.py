"""Words a second of fairseq-train in two processes over one, on two idle cores; the same words an update in both.

Needs cores that do nothing else, since it is the clock that counts here: skipped where they are busy.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from ..conftest import USER_DIR, run
from .language_model_peers import VOCABULARY
from .test_language_models import text

SENTENCES, LENGTH = 8_000, 25
TRANSLATION = ("--task", "translation", "--criterion", "tied_cross_entropy", "--optimizer", "adam", "--lr", "1e-4")
TRANSLATION += ("--share-all-embeddings", "--required-batch-size-multiple", "1")
NMT_SIZES = tuple(
    word
    for side, embed, hidden in (("encoder", "256", "512"), ("decoder", "256", "512"))
    for word in (f"--{side}-embed-dim", embed, f"--{side}-hidden-size", hidden)
) + ("--decoder-out-embed-dim", "256")
# name: flags, rows of an update, words of a row, updates at first and beyond
MODELS = {
    "LM 2 x 200": (("--arch", "zaremba_lm_small_wt"), 20, 20, 20, 220),
    "LM 2 x 1500": (("--arch", "zaremba_lm_large_wt"), 20, 35, 2, 12),
    "NMT 256/512/10k": (("--arch", "lstm_nmt_twwt", *TRANSLATION, *NMT_SIZES), 72, LENGTH, 2, 12),
    "Transformer iwslt": (("--arch", "tied_transformer_iwslt_de_en", *TRANSLATION), 160, LENGTH, 2, 8),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Binarised sentences of 10,000 word types in two languages, which serve language models too."""
    folder = tmp_path_factory.mktemp("data")
    length = LENGTH - 1  # and the end of the sentence
    every = torch.arange(4, VOCABULARY)[: (VOCABULARY - 4) // length * length].view(-1, length)
    for language in ("de", "en"):
        lines = torch.cat((every, text(SENTENCES, length))).tolist()
        (folder / f"train.{language}").write_text(
            "".join(" ".join(f"w{word}" for word in line) + "\n" for line in lines)
        )
    pair = ("--source-lang", "de", "--target-lang", "en", "--joined-dictionary")
    run("preprocess", *pair, "--trainpref", folder / "train", "--destdir", folder / "pairs")
    run("preprocess", "--only-source", "--trainpref", folder / "train.en", "--destdir", folder / "text")
    return folder


def clock_seconds(command: Sequence[str]) -> float:
    """By the clock, of a command."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return time.perf_counter() - start


def words_a_second(data: Path, name: str, processes: int) -> float:
    """Of the updates beyond the first ones, so that what starting costs is taken off."""
    flags, rows, length, few, many = MODELS[name]
    command = [
        *(sys.executable, "-m", "fairseq_cli.train", str(data / ("text" if "LM" in name else "pairs"))),
        *("--user-dir", str(USER_DIR), *flags, "--cpu", "--batch-size", str(rows // processes)),
        *("--distributed-world-size", str(processes), "--no-save", "--disable-validation", "--num-workers", "0"),
        "--max-update",
    ]
    seconds = clock_seconds([*command, str(many)]) - clock_seconds([*command, str(few)])
    return (many - few) * rows * length / seconds


def busy_cores(seconds: float = 3.0) -> float:
    """How many cores of the machine do something, over some seconds, in which this process sleeps."""

    def idle() -> float:
        with open("/proc/stat") as file:
            return sum(map(int, file.readline().split()[4:6])) / os.sysconf("SC_CLK_TCK")

    before = idle()
    time.sleep(seconds)
    return os.cpu_count() - (idle() - before) / seconds


@pytest.mark.benchmark
@pytest.mark.parametrize("name", MODELS)
def test_two_processes(data: Path, name: str) -> None:
    cores, busy = len(os.sched_getaffinity(0)), busy_cores()
    if cores < 2 or busy > 0.2:
        pytest.skip(f"needs two idle cores; there are {cores}, and {busy:.1f} of the machine's are busy")
    rates = {1: [], 2: []}
    for _ in range(3):
        for processes, found in rates.items():
            found.append(words_a_second(data, name, processes))
    ratios = sorted(two / one for one, two in zip(*rates.values(), strict=True))
    print(f"{name}: {statistics.median(rates[1]):.0f} words/s in one process, {statistics.median(rates[2]):.0f} in two")
    print(f"  two over one {statistics.median(ratios):.2f} [{ratios[0]:.2f}-{ratios[-1]:.2f}]")
