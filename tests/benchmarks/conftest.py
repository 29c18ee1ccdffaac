"""Before the figures of each benchmark, what they were measured on; with RECORD=NOTE, rows of the tables of speed."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

import fairseq_tiedemb.plugin  # noqa: F401 (registers the models)
from fairseq_tiedemb import fast_products, products
from fairseq_tiedemb.results.environment import processor
from fairseq_tiedemb.training.cpu import keep_freed_memory

# The search of fairseq's models as fairseq has it, without `best_words_of_blocks`.
STOCK_SEARCH: Any = SequenceGenerator.generate.__wrapped__  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def as_commands_do(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Prints the processor's name, torch's version and the date; ratios, too, are those of one processor.

    Everything in a benchmark multiplies by the library that fairseq's commands choose, but for contestants that are
    there as torch ships. Freed memory is kept, as those commands keep it.
    """
    if request.node.get_closest_marker("benchmark") is None:
        yield
        return
    keep_freed_memory()
    monkeypatch.setenv(products.VARIABLE, "auto")
    threads = torch.get_num_threads()
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    print(f"\n{processor()}, {threads} thread{'s' * (threads > 1)}, torch {torch.__version__}, {today}")
    with products.multiplying_by(products.in_use()):
        print(f"float32 products by {fast_products()}")
        yield


def cpu_seconds(command: list[str]) -> float:
    """CPU time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


Record = Callable[[str, str, Mapping[str, object]], None]


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Writes a result of (table, row, figures by column), as recipes do, if RECORD is set, to a note on the machine."""
    root = Path(__file__).resolve().parents[2]

    def write(table: str, row: str, figures: Mapping[str, object]) -> None:
        if "RECORD" in os.environ:
            said = [f"{column}={figure}" for column, figure in figures.items()]
            note = f"float32 products by {products.in_use()}; {os.environ['RECORD']}"
            command = [sys.executable, "recipes/record.py", table, row, "--figure", *said, "--note", note]
            command += ["--gpu"] * bool(request.node.get_closest_marker("gpu"))
            test = f"pytest -m benchmark -s '{request.node.nodeid}'"
            environment = {**os.environ, "PYTHONPATH": str(root)}  # the commit is that of this checkout
            subprocess.run([*command, "--command", test], cwd=root, check=True, env=environment)

    return write
