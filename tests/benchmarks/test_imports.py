"""What it costs to start: CPU seconds of fresh processes, the interpreter's own start included.

Asked: the core at most 0.2 s over torch, the plugin at most 0.3 s over fairseq, `path` at most 0.1 s over Python, and
`ngram --help` under 0.3 s.
"""

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CLI = "import sys; from fairseq_tiedemb.cli import main; sys.exit(main(sys.argv[1:]))"
# Each program, and the one that it is measured over.
PROGRAMS: dict[str, tuple[list[str], str | None]] = {
    "python": (["pass"], None),
    "fairseq-tiedemb path": ([CLI, "path"], "python"),
    "fairseq-tiedemb --help": ([CLI, "--help"], "python"),
    "import numpy": (["import numpy"], "python"),
    "fairseq-tiedemb ngram --help": ([CLI, "ngram", "--help"], "import numpy"),
    "import torch": (["import torch"], "python"),
    "the core": (["from fairseq_tiedemb import SharedEmbedding, output_loss"], "import torch"),
    "import fairseq": (["import fairseq"], "import torch"),
    "the plugin, first": (["import fairseq_tiedemb.plugin"], "import fairseq"),
    "the plugin, after fairseq": (["import fairseq, fairseq_tiedemb"], "import fairseq"),
}


def cpu_seconds(arguments: list[str]) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", *arguments], cwd="/", env=environment, stdout=subprocess.PIPE, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.benchmark
def test_imports_in_fresh_processes() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for measured in range(-1, 7):
        for name, (arguments, _) in PROGRAMS.items():
            took = cpu_seconds(arguments)
            if measured >= 0:
                seconds[name].append(took)
    print("CPU seconds of a fresh process")
    for name, (_, under) in PROGRAMS.items():
        line = f"  {name:28s} {statistics.median(seconds[name]):6.3f}"
        if under is not None:
            over = [a - b for a, b in zip(seconds[name], seconds[under], strict=True)]
            line += f"   {statistics.median(over):6.3f} [{min(over):6.3f} {max(over):6.3f}] over {under}"
        print(line)
