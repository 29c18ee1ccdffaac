"""CPU seconds and peak memory of a command that may be interrupted and run again: they add up, a line a run."""

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fairseq_tiedemb.checkpoints.json_text import parse_json
from fairseq_tiedemb.results.environment import checkout
from fairseq_tiedemb.results.fields import of_object

# Seconds between two looks at a command that runs: what is lost of the count if it is killed together with its watcher.
INTERVAL = 30


@dataclass(frozen=True)
class Usage:
    """What a training took, over all the times that it was run.

    Attributes:
        cpu_seconds: of user and system, of all its processes.
        wall_seconds: while it ran.
        peak_memory: bytes, of its largest process.
        runs: how often it was started.
        commits: what it ran, in order, a `+` after a commit whose sources were changed.
    """

    cpu_seconds: float
    wall_seconds: float | None = None
    peak_memory: int | None = None
    runs: int | None = None
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Run:
    cpu_seconds: float
    wall_seconds: float
    peak_memory: int
    commit: str | None = None


def read_usage(path: Path) -> Usage:
    """Reads what `measure` wrote, and adds it up.

    Raises:
        ValueError: naming the file, and the line and the field that are not its.
    """
    names = [field.name for field in fields(_Run)]
    runs = []
    for number, line in enumerate(_read_lines(path), start=1):
        runs.append(of_object(_Run, {name: line.get(name) for name in names}, path, f"line {number}"))
    if not runs:
        raise ValueError(f"{path}: needs a line for each run; got none. Use the file of `fairseq-tiedemb measure`.")
    return Usage(
        cpu_seconds=round(sum(run.cpu_seconds for run in runs), 1),
        wall_seconds=round(sum(run.wall_seconds for run in runs), 1),
        peak_memory=max(run.peak_memory for run in runs),
        runs=len(runs),
        commits=tuple(dict.fromkeys(run.commit for run in runs if run.commit)),
    )


def measure(command: Sequence[str], path: Path) -> int:
    """Runs a command and adds its usage to a file as one JSON line, which is brought up to date while it runs.

    A signal to end is handed on to the command, and its last figures are written.

    Args:
        command: a program and its arguments.
        path: the file, which need not be there.

    Returns:
        The command's exit status; 128 and the signal's number if one ended it, as a shell has it.

    Raises:
        ValueError: naming the program, if it cannot be run, or the file, if it is of another kind.
    """
    if path.exists():
        with _locked(path):
            _read_lines(path)  # a file that cannot be added to is refused before any work
    commit, dirty = checkout()
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise ValueError(f"COMMAND: needs a program; got {command[0]} ({error.strerror}). Use another.") from error
    line: dict[str, Any] = {"begin": datetime.now(UTC).isoformat(timespec="seconds"), "run": secrets.token_hex(8)}
    if commit:
        line["commit"] = commit + "+" * bool(dirty)
    begin = time.monotonic()

    def write(cpu_seconds: float, peak_memory: int, status: int | None) -> None:
        wall = round(time.monotonic() - begin, 1)
        now = {"cpu_seconds": round(cpu_seconds, 1), "wall_seconds": wall, "peak_memory": peak_memory, "status": status}
        _put(path, line | now)

    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            with contextlib.suppress(ValueError):  # of a file that somebody has damaged: said at the end
                write(*sample(process.pid), status=None)

    # Ctrl-C reaches the command from the terminal; what is sent to this process alone is handed on.
    old = {signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        old[number] = signal.signal(number, lambda number, frame: os.kill(process.pid, number))
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        _, status, used = os.wait4(process.pid, 0)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        ended.set()
        watcher.join()
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code if code >= 0 else 128 - code
    # Linux counts in KiB.
    write(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, process.returncode)
    return process.returncode


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


def _put(path: Path, line: dict[str, Any]) -> None:
    """Adds a line, or brings that of the same run up to date, while other runs do the same with theirs."""
    with _locked(path):
        lines = _read_lines(path)
        runs = [each.get("run") for each in lines]
        if line["run"] in runs:
            lines[runs.index(line["run"])] = line
        else:
            lines.append(line)
        aside = path.with_name(f".{path.name}.part")
        aside.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
        aside.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keeps other runs from the file. While one waits for the lock, another file may take the name: that one is locked.

    Raises:
        ValueError: if the file cannot be written.
    """
    while True:
        try:
            file = path.open("a")
        except OSError as error:
            raise ValueError(f"{path}: needs a file that can be written; got {error.strerror}. Use another.") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return


def _read_lines(path: Path) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    try:
        for line in map(parse_json, path.read_text(encoding="utf-8").splitlines()):
            if not isinstance(line, dict):
                raise ValueError(line)
            lines.append(line)
    except OSError as error:
        raise ValueError(f"{path}: needs a file that can be read; got {error.strerror}. Use another path.") from error
    except ValueError as error:
        raise ValueError(
            f"{path}: needs a JSON object on each line; got another line {len(lines) + 1}. Use another file."
        ) from error
    return lines
