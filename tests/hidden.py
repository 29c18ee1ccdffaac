"""Programs in fresh processes where fairseq is not installed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# No finder is asked for what is hidden, so that to import it and to look for it find nothing. torchaudio is hidden
# because transformers imports it where it is there, also where it does not fit the torch that is.
HIDE = """
import sys
class Finder:
    def __init__(self, finders, hidden):
        self.finders, self.hidden = finders, hidden
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.hidden:
            for finder in self.finders:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
sys.meta_path[:] = [Finder(sys.meta_path[:], {"fairseq", "fairseq_cli", "torchaudio"})]
"""


def python(program: str, *arguments: str) -> str:
    """Runs a program in a fresh process that imports this checkout, from another folder; returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def without_fairseq(program: str, *arguments: str) -> str:
    """``python`` where fairseq cannot be found."""
    return python(HIDE + program, *arguments)


def run_example(path: Path, *arguments: str) -> str:
    """Runs a script where fairseq cannot be found, and returns what it prints."""
    return without_fairseq(f"import runpy\nrunpy.run_path({str(path)!r}, run_name='__main__')", *arguments)
