"""`fairseq-tiedemb measure`: CPU seconds and memory of a command that may be interrupted; `fairseq-tiedemb env`."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fairseq_tiedemb
from fairseq_tiedemb import cli, compat
from fairseq_tiedemb.results import usage

ROOT = Path(fairseq_tiedemb.__file__).parent.parent
# Half a CPU second, a third of it in a child, and 50 MB.
WORK = """
import os, sys, time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
if (child := os.fork()) == 0:
    work(.2)
    os._exit(0)
os.waitpid(child, 0)
block = bytearray(50_000_000)
work(.3)
sys.exit(int(sys.argv[1]))
"""


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_runs_add_up(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    # In a process of its own: what a child has of its parent's memory before it runs anything counts as the child's.
    measure = [sys.executable, "-m", "fairseq_tiedemb.cli", "measure", str(path), sys.executable, "-c", WORK]
    runs = [subprocess.run([*measure, status], cwd=ROOT, capture_output=True, text=True) for status in "03"]
    assert [each.returncode for each in runs] == [0, 3]
    first, second = lines(path)
    assert (first["status"], second["status"]) == (0, 3)
    for line in (first, second):
        assert 0.5 <= line["cpu_seconds"] < 2
        assert 50e6 < line["peak_memory"] < 500e6
    total = usage.read_usage(path)
    assert total.cpu_seconds == pytest.approx(first["cpu_seconds"] + second["cpu_seconds"])
    assert total.peak_memory == max(first["peak_memory"], second["peak_memory"])
    assert total.runs == 2
    assert "CPU seconds in 2 runs" in runs[1].stderr


def test_runs_at_once_have_a_line_each(tmp_path: Path) -> None:
    """Where each knew the lines of its beginning alone, the last one to end left its own."""
    path = tmp_path / "usage.jsonl"
    measure = [sys.executable, "-m", "fairseq_tiedemb.cli", "measure", str(path), sys.executable, "-c"]
    # Each waits for the others' files, so that all of them run at once.
    work = "import pathlib, sys, time\nfolder = pathlib.Path(sys.argv[1])\n(folder / sys.argv[2]).touch()\n"
    work += "while len(list(folder.glob('run*'))) < 3: time.sleep(0.01)\nsys.exit(int(sys.argv[2][3:]))"
    runs = [subprocess.Popen([*measure, work, str(tmp_path), f"run{number}"], cwd=ROOT) for number in range(3)]
    try:
        assert [each.wait(60) for each in runs] == [0, 1, 2]
    finally:
        for each in runs:
            each.kill()
    assert sorted(line["status"] for line in lines(path)) == [0, 1, 2]
    assert usage.read_usage(path).runs == 3
    assert not list(tmp_path.glob(".*"))


def test_many_writers_lose_no_line(tmp_path: Path) -> None:
    """Each brings its line up to date again and again while others add theirs."""
    path = tmp_path / "usage.jsonl"
    code = "import sys\nfrom pathlib import Path\nfrom fairseq_tiedemb.results.usage import _put\n"
    code += "for count in range(50):\n    _put(Path(sys.argv[1]), {'run': sys.argv[2], 'count': count})"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name], cwd=ROOT) for name in "abcd"]
    assert [each.wait(60) for each in writers] == [0] * 4
    assert sorted((line["run"], line["count"]) for line in lines(path)) == [(name, 49) for name in "abcd"]


def start(path: Path, interval: float = 0.2) -> subprocess.Popen[bytes]:
    """A command that works for ever, watched by a process of its own."""
    code = f"from fairseq_tiedemb.results import usage\nusage.INTERVAL = {interval}\n"
    code += f"usage.measure([{sys.executable!r}, '-c', 'while True: pass'], __import__('pathlib').Path({str(path)!r}))"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True)


def test_killed_together_with_its_watcher(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    process = start(path)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not (path.exists() and lines(path)[0]["cpu_seconds"] >= 0.2):
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (line,) = lines(path)
    assert line["cpu_seconds"] >= 0.2
    assert line["peak_memory"] > 1e6
    assert line["status"] is None


def test_a_signal_is_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    process = start(path)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and not path.exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert lines(path)[0]["status"] == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{folder}/usage.jsonl"], "COMMAND: needs a program and its arguments; got none."),
        (["{folder}/usage.jsonl", "no-such-program"], "COMMAND: needs a program; got no-such-program (No such file"),
        (["{folder}/none/usage.jsonl", "true"], "FILE: needs a folder that exists; got {folder}/none."),
        (["{folder}/other", "true"], "{folder}/other: needs a JSON object on each line; got another line 1."),
        (["{folder}/numbers", "true"], "{folder}/numbers: needs a JSON object on each line; got another line 2."),
    ],
)
def test_refused(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_text("text\n")
    (tmp_path / "numbers").write_text('{"cpu_seconds": 1}\n5\n')
    assert cli.main(["measure", *(word.format(folder=tmp_path) for word in arguments)]) == 2
    assert message.format(folder=tmp_path) in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numbers", "other"]


def test_a_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path}: needs a file that can be written; got Is a directory. Use"):
        usage.measure(["touch", str(tmp_path / "worked")], tmp_path)
    assert not (tmp_path / "worked").exists()


def test_env(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["env"]) == 0
    text = capsys.readouterr().out
    assert f"fairseq_tiedemb: {fairseq_tiedemb.__version__}\n" in text
    assert "products:        blas (" in text
    assert f"mended:          {len(compat.ENTRIES)} entries: {compat.ENTRIES[0].__name__}, " in text
    # It is for installations that do not work, too.
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "fairseq_tiedemb.compat", None)
    monkeypatch.delattr(fairseq_tiedemb, "compat", raising=False)
    assert cli.main(["env"]) == 0
    text = capsys.readouterr().out
    assert "torch does not import: " in text
    assert "nothing, since fairseq does not import: " in text
