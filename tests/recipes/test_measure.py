"""`recipes/measure.py`: CPU seconds and memory of a command that may be interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import measure
import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.results.usage import read_usage

from .shell import RECIPES

# A quarter of a CPU second, some of it in a child, and 50 MB.
WORK = """
import os, sys, time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
if (child := os.fork()) == 0:
    work(.1)
    os._exit(0)
os.waitpid(child, 0)
block = bytearray(50_000_000)
work(.15)
sys.exit(int(sys.argv[1]))
"""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_runs_at_once_add_up(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    # In a process of its own: what a child has of its parent's memory before it runs anything counts as the child's.
    command = [sys.executable, RECIPES / "measure.py", path, sys.executable, "-c", WORK]
    runs = [subprocess.Popen([*command, status], stderr=subprocess.PIPE, text=True) for status in "03"]
    said = [each.communicate()[1] for each in runs]
    assert [each.returncode for each in runs] == [0, 3]
    assert sorted(line["status"] for line in lines(path)) == [0, 3]
    for line in lines(path):
        assert 0.25 <= line["cpu_seconds"] < 2
        assert 50e6 < line["peak_memory"] < 500e6
    total = read_usage(path)
    assert total.cpu_seconds == pytest.approx(sum(line["cpu_seconds"] for line in lines(path)))
    assert total.peak_memory == max(line["peak_memory"] for line in lines(path))
    assert total.runs == 2
    assert any("CPU seconds in 2 runs" in text for text in said)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_ended_by_a_signal(end: signal.Signals, tmp_path: Path) -> None:
    """Killed together with its watcher, it keeps the last look's figures; SIGTERM to the watcher is handed on."""
    path = tmp_path / "usage.jsonl"
    code = "import measure, pathlib, sys\nmeasure.INTERVAL = 0.2\n"
    code += "measure.measure([sys.executable, '-c', 'while True: pass'], pathlib.Path(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", code, path], cwd=RECIPES, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (lines(path) and lines(path)[-1]["cpu_seconds"] >= 0.2):
            time.sleep(0.05)
        if end == signal.SIGTERM:
            process.send_signal(end)
            process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    line = lines(path)[-1]
    assert line["cpu_seconds"] >= 0.2
    assert line["peak_memory"] > 1e6
    assert line["status"] == (None if end == signal.SIGKILL else 128 + end)
    assert read_usage(path).runs == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/usage.jsonl"], "COMMAND: needs a program and its arguments; got none."),
        (["{folder}/usage.jsonl", "no-such-program"], "COMMAND: needs a program; got no-such-program (No such file"),
        (["{folder}/none/usage.jsonl", "true"], "FILE: needs a folder that exists; got {folder}/none."),
        (["{folder}", "true"], "FILE: needs the name of a file; got {folder}, which is none."),
        (["{folder}/other", "touch", "{folder}/worked"], "{folder}/other: needs cpu_seconds, wall_seconds and"),
    ],
)
def test_refused_before_the_work(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").write_text("text\n")
    words = [word.format(folder=tmp_path) for word in arguments]
    assert cli.main(words, measure.create_parser()) == 2
    assert message.format(folder=tmp_path) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
