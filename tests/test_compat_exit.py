"""How a command ends while a thread of fairseq's still reads batches ahead."""

import subprocess
import sys
import threading
from pathlib import Path

import torch
from fairseq.data.iterators import BackgroundConsumer, BufferedIterator

from fairseq_tiedemb.compat.batches import end_reading_ahead

ROOT = Path(__file__).resolve().parent.parent
# The thread always is in torch's code, and the program has an error to report. torch warns as 2.14 does; of fairseq's
# own commands it does before a plugin is there.
PROGRAM = """
import sys, warnings, torch
script = torch.jit.script
def warning_script(*args, **kwargs):
    warnings.warn("`torch.jit.script` is deprecated. Please switch to `torch.compile`.", FutureWarning, stacklevel=2)
    return script(*args, **kwargs)
torch.jit.script = warning_script
import fairseq_tiedemb.plugin
print("fairseq.models.model_utils" in sys.modules)
from fairseq.data.iterators import BufferedIterator

class Batches:
    def __len__(self):
        return 10**9

    def __iter__(self):
        while True:
            yield torch.zeros(100_000).add_(1).sum()

next(BufferedIterator(10**9, Batches()))
raise ValueError("--arch: needs a model")
"""


def test_a_command_is_not_aborted_by_the_thread_that_reads_ahead() -> None:
    """And a Python program is not warned of what fairseq does."""
    process = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (1, "True\n"), process.stderr
    assert process.stderr.startswith("Traceback (most recent call last)")
    assert process.stderr.endswith("ValueError: --arch: needs a model\n")


def test_a_thread_that_waits_for_a_place_ends() -> None:
    before = threading.enumerate()
    next(BufferedIterator(1, torch.arange(100)))
    [thread] = [each for each in threading.enumerate() if isinstance(each, BackgroundConsumer) and each not in before]
    end_reading_ahead()
    assert not thread.is_alive()
    assert thread.count < 5
