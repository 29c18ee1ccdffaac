"""Programs in fresh processes where fairseq is not installed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# No finder finds what is hidden, to import it or to look whether it is there. torchaudio is hidden because transformers
# imports it where it is there, also where it does not fit the torch that is.
HIDE = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, *arguments):
        if name.partition(".")[0] not in ("fairseq", "fairseq_cli", "torchaudio"):
            return self.finder.find_spec(name, *arguments)
sys.meta_path[:] = map(Hiding, sys.meta_path)
"""


def python(program: str, *arguments: str) -> str:
    """Runs a program in a fresh process that imports this checkout, from another folder; returns what it prints."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def without_fairseq(program: str, *arguments: str) -> str:
    """``python`` where fairseq cannot be found."""
    return python(HIDE + program, *arguments)


def run_example(path: Path, *arguments: str) -> str:
    """Runs a script where fairseq cannot be found; returns what it prints."""
    return without_fairseq(f"import runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')", *arguments)
