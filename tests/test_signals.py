"""Commands that are told to end: a line, the signal's status, and nothing half-written."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# A command that writes aside until it is stopped, in the place of `path`.
PROGRAM = """
import sys, time
from pathlib import Path
from fairseq_tiedemb import cli
from fairseq_tiedemb.cli import path
from fairseq_tiedemb.cli._output import written_aside
def run(arguments):
    with written_aside(Path(sys.argv[1])) as folder:
        folder.mkdir()
        (folder / "half").touch()
        print("begun", flush=True)
        time.sleep(60)
path.run = run
sys.exit(cli.main(["path"]))
"""


def begun(folder: Path, *, ignored: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    """The program, when its folder is half written."""

    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

    command = [sys.executable, "-c", PROGRAM, str(folder / "out")]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, preexec_fn=ignore, **streams)
    assert process.stdout.readline() == "begun\n"
    assert len(list(folder.iterdir())) == 1
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_leaves_nothing_but_a_line(number: signal.Signals, tmp_path: Path) -> None:
    process = begun(tmp_path)
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (-number, f"fairseq-tiedemb: ended by {number.name}\n")
    assert list(tmp_path.iterdir()) == []


def test_signals_after_the_first_do_not_stop_the_cleaning_up(tmp_path: Path) -> None:
    process = begun(tmp_path)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    assert process.communicate(timeout=30)[1].count("\n") == 1
    assert -process.returncode in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As in `nohup fairseq-tiedemb ...`."""
    process = begun(tmp_path, ignored=(signal.SIGHUP,))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == -signal.SIGTERM


def test_a_terminal_that_is_gone_is_no_further_fault(tmp_path: Path) -> None:
    process = begun(tmp_path)
    process.stderr.close()
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == -signal.SIGHUP
    assert list(tmp_path.iterdir()) == []


def test_the_handlers_of_a_program_that_calls_a_command_come_back() -> None:
    program = (
        "import signal, threading; from fairseq_tiedemb.cli import main\n"
        "own = lambda number, frame: None; signal.signal(signal.SIGTERM, own)\n"
        "main(['path']); assert signal.getsignal(signal.SIGTERM) is own\n"
        "thread = threading.Thread(target=main, args=(['path'],)); thread.start(); thread.join()\n"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.count(os.sep + "fairseq_tiedemb\n") == 2
