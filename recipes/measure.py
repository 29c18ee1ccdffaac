"""Run a command, and add its CPU time and memory to a file.

Every run adds JSON lines of its own, of which the last one counts, so that `record` can add up the runs of an
interrupted training. A line is added twice a minute while the command runs: if both are killed, at most half a minute
is lost. A signal to end is handed on to the command, and its last figures are written.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli import main
from fairseq_tiedemb.cli._output import check_output
from fairseq_tiedemb.results.environment import checkout
from fairseq_tiedemb.results.usage import Usage, read_usage

# Seconds between two looks at a command that runs: what is lost of the count if it is killed together with its watcher.
INTERVAL = 30


def create_parser() -> argparse.ArgumentParser:
    """Returns the parser of the file and the command."""
    parser = argparse.ArgumentParser("measure.py", description=__doc__)
    parser.set_defaults(run=run, exact=False)
    parser.add_argument("file", type=Path, metavar="FILE", help="file to which JSON lines are added")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="a program and its arguments")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Runs the command, prints the total cost of all its runs on stderr, and returns its exit status."""
    if not arguments.command:
        raise ValueError("COMMAND: needs a program and its arguments; got none. Use measure.py FILE fairseq-train ...")
    check_output(arguments.file, flag="FILE")
    if arguments.file.exists() and arguments.file.stat().st_size:
        read_usage(arguments.file)  # a file that cannot be added to is refused before any work
    status = measure(arguments.command, arguments.file)
    print(as_text(read_usage(arguments.file)), file=sys.stderr)
    return status


def measure(command: Sequence[str], path: Path) -> int:
    """Runs a command and adds its usage to a file.

    Returns:
        The command's exit status; 128 and the signal's number if one ended it, as a shell has it.

    Raises:
        ValueError: naming the program, if it cannot be run.
    """
    commit, dirty = checkout()
    line: dict[str, Any] = {"begin": datetime.now(UTC).isoformat(timespec="seconds"), "run": secrets.token_hex(8)}
    if commit:
        line["commit"] = commit + "+" * bool(dirty)
    begin = time.monotonic()

    def write(cpu_seconds: float, peak_memory: int, status: int | None) -> None:
        wall = round(time.monotonic() - begin, 1)
        figures = {"cpu_seconds": round(cpu_seconds, 1), "wall_seconds": wall, "peak_memory": peak_memory}
        with path.open("a", encoding="utf-8") as file:  # one write: runs at once do not tear each other's lines
            file.write(json.dumps(line | figures | {"status": status}) + "\n")

    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise ValueError(f"COMMAND: needs a program; got {command[0]} ({error.strerror}). Use another.") from error
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            write(*sample(process.pid), status=None)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    code, used = wait_for(process)
    ended.set()
    watcher.join()
    unit = 1 if sys.platform == "darwin" else 1024
    write(used.ru_utime + used.ru_stime, used.ru_maxrss * unit, code)
    return code


def wait_for(process: subprocess.Popen[bytes]) -> tuple[int, Any]:
    """Waits for a command, handing signals on; returns its exit status as a shell has it, and its resources."""
    # Ctrl-C reaches the command from the terminal; what is sent to this process alone is handed on.
    old = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        old[number] = signal.signal(number, lambda number, frame: os.kill(process.pid, number))
    try:
        _, status, used = os.wait4(process.pid, 0)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code if code >= 0 else 128 - code
    return process.returncode, used


def sample(number: int) -> tuple[float, int]:
    """CPU seconds and peak memory in bytes, until now, of a process and its children, by Linux's /proc.

    (0, 0) where it tells nothing.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    cpu_seconds, peak = 0.0, 0
    waiting = [number]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            # After the name, which may hold anything: fields 14 to 17 are its own time and that of ended children.
            values = (folder / "stat").read_text().rpartition(")")[2].split()
            status = (folder / "status").read_text()
            waiting += map(int, (folder / f"task/{folder.name}/children").read_text().split())
        except OSError:  # it has ended meanwhile, or there is no /proc
            continue
        cpu_seconds += sum(map(int, values[11:15])) / ticks
        peak = max([peak, *(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))])
    return cpu_seconds, peak


def as_text(usage: Usage) -> str:
    """One line: what all runs took together."""
    memory = (usage.peak_memory or 0) / 1e9
    return (
        f"{usage.cpu_seconds:.1f} CPU seconds in {usage.runs} {'run' if usage.runs == 1 else 'runs'}, wall clock "
        f"{usage.wall_seconds:.1f}, peak memory {memory:.2f} GB"
    )


if __name__ == "__main__":
    sys.exit(main(parser=create_parser()))
