"""Words a second of fairseq-train on two idle cores over one: in two threads, and in two processes.

An update has the same words in all. The *limit* of two processes is an update of half of the words, and gloo's sum of
all gradients after it: nothing of it overlaps where a table is shared, since its gradient is complete only with that
of the input. The clock counts here, so cores must do nothing else: skipped where they are busy.
"""

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from ..conftest import USER_DIR, run
from .conftest import Record
from .interleave import ratio
from .language_model_peers import VOCABULARY, text

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
    "NMT 256, 512, 10k": (("--arch", "lstm_nmt_twwt", *TRANSLATION, *NMT_SIZES), 72, LENGTH, 2, 12),
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


@dataclass(frozen=True)
class Way:
    """How fairseq-train uses the machine: processes, threads of each, and the part of the batch that it trains."""

    processes: int = 1
    threads: int = 1
    part: int = 1  # a half is 2


ONE, WAYS = Way(), {"threads": Way(threads=2), "processes": Way(processes=2), "half": Way(part=2)}


def clock_seconds(command: Sequence[str], threads: int) -> tuple[float, str]:
    """By the clock, of a command; and what it printed."""
    start = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "1000"}
    said = subprocess.run(command, check=True, capture_output=True, env=environment, text=True).stdout
    return time.perf_counter() - start, said


def update_seconds(data: Path, name: str, way: Way) -> tuple[float, int]:
    """Of an update beyond the first ones, so that what starting costs is taken off; and the number of parameters."""
    flags, rows, _, few, many = MODELS[name]
    command = [
        *(sys.executable, "-m", "fairseq_cli.train", str(data / ("text" if "LM" in name else "pairs"))),
        *("--user-dir", str(USER_DIR), *flags, "--cpu", "--batch-size", str(rows // way.processes // way.part)),
        *("--distributed-world-size", str(way.processes), "--no-save", "--disable-validation", "--num-workers", "0"),
        "--max-update",
    ]
    seconds, said = clock_seconds([*command, str(many)], way.threads)
    found = re.search(r"num. shared model params: ([\d,]+)", said)
    return (seconds - clock_seconds([*command, str(few)], way.threads)[0]) / (many - few), number(found[1])


def number(text: str) -> int:
    return int(text.replace(",", ""))


SUM = """
import sys, time, torch
from torch import distributed
distributed.init_process_group("gloo", rank=int(sys.argv[1]), world_size=2, init_method="file://" + sys.argv[2])
gradients = torch.ones(int(sys.argv[3]))
for _ in range(30):
    distributed.barrier()
    start = time.perf_counter()
    distributed.all_reduce(gradients)
    print(time.perf_counter() - start)
distributed.destroy_process_group()
"""


def sum_seconds(numbers: int, meeting: Path) -> float:
    """By the clock, of gloo's sum of so many numbers over two processes; they meet at a file that is not there yet."""
    command = [sys.executable, "-c", SUM]
    processes = [
        subprocess.Popen([*command, str(rank), str(meeting), str(numbers)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    first, _ = (process.communicate()[0] for process in processes)
    return statistics.median(map(float, first.split()))


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
def test_two_cores(data: Path, name: str, tmp_path: Path, record: Record) -> None:
    cores, busy = len(os.sched_getaffinity(0)), busy_cores()
    if cores < 2 or busy > 0.2:
        pytest.skip(f"needs two idle cores; there are {cores}, and {busy:.1f} of the machine's are busy")
    seconds: dict[str, list[float]] = {"one": [], **{way: [] for way in WAYS}, "limit": []}
    for round_ in range(3):
        for way, how in {"one": ONE, **WAYS}.items():
            each, parameters = update_seconds(data, name, how)
            seconds[way].append(each)
        seconds["limit"].append(seconds["half"][-1] + sum_seconds(parameters, tmp_path / str(round_)))
    _, rows, length, *_ = MODELS[name]
    print(f"{name}: {rows * length / statistics.median(seconds['one']):.0f} words/s in one process of one thread")
    figures = {way: ratio(seconds, "one", way) for way in ("threads", "processes", "limit")}
    for way, over in figures.items():
        print(f"  {way:10s} {over}")
    record("speed-cores", name, figures)
