"""What it costs to start: CPU seconds of fresh processes.

Asked: the core at most 0.2 s over torch, the plugin at most 0.3 s over fairseq, `path` at most 0.1 s over Python, and
`ngram --help` under 0.3 s.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Record

ROOT = Path(__file__).resolve().parent.parent.parent
CLI = "from fairseq_tiedemb.cli import main; main({})"
# Each program, and what it is measured over, which the same process has done before.
PROGRAMS: dict[str, tuple[str, str]] = {
    "fairseq-tiedemb path": (CLI.format(["path"]), ""),
    "fairseq-tiedemb --help": (CLI.format(["--help"]), ""),
    "fairseq-tiedemb ngram --help": (CLI.format(["ngram", "--help"]), "import numpy"),
    "the core": ("from fairseq_tiedemb import SharedEmbedding, output_loss", "import torch"),
    "the plugin": ("import fairseq_tiedemb.plugin", "import fairseq"),
}
MEASURED = """
import time
{over}
before = time.process_time()
try:
    {program}
except SystemExit:
    pass
import sys
print(before, time.process_time() - before, file=sys.stderr)
"""


def cpu_seconds(program: str, over: str) -> tuple[float, float]:
    """CPU seconds of a fresh process up to the program, Python's own start included, and of the program."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MEASURED.format(program=program, over=over)]
    process = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True)
    before, took = map(float, process.stderr.splitlines()[-1].split())
    return before, took


@pytest.mark.benchmark
def test_imports_in_fresh_processes(record: Record) -> None:
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for measured in range(-1, 7):
        for name, program in PROGRAMS.items():
            took = cpu_seconds(*program)
            if measured >= 0:
                seconds[name].append(took)
    print("CPU seconds of a fresh process, and those of what it is there for")
    for name, (_, over) in PROGRAMS.items():
        whole = statistics.median(map(sum, seconds[name]))
        own = [took for _, took in seconds[name]]
        spread = f"{statistics.median(own):.3f} [{min(own):.3f}-{max(own):.3f}]"
        print(f"  {name:28s} {whole:6.3f}   {spread} after {over or 'the start of Python'}")
        row = name.replace(" --help", "").split()[-1].replace("fairseq-tiedemb", "help")
        record("speed-start", row, {"seconds": f"{whole:.3f}", "over": spread})
