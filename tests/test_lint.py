"""`make test` and `make lint`: lint where its versions are pinned, tests everywhere."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINT = ["shellcheck", "ruff", "ruff", "mypy"]
# Notes its name; `mypy` fails where a file says so.
TOOL = """#!/bin/sh
echo "${0##*/}" >>record
[ "${0##*/}" != mypy ] || [ ! -e faults ]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The Makefile over an environment whose tools only note that they ran."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name in {*LINT, "pytest"}:
        (programs / name).write_text(TOOL)
        (programs / name).chmod(0o755)
    (tmp_path / "setup.py").touch()
    (tmp_path / ".venv/.ready").touch()
    return tmp_path


def pinned() -> str:
    """The Python and the torch that lint belongs to, as the Makefile has them."""
    return " ".join(re.findall(r"^LINT_\w+ := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def make(target: str, checkout: Path, versions: str) -> tuple[bool, list[str], str]:
    """Whether a target succeeded in an environment of these versions, the tools that ran, and what was printed."""
    python = checkout / ".venv/bin/python"
    python.write_text(f"#!/bin/sh\necho {versions}\n")
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "PYTEST")}
    command = ["make", target] if target != "ci" else [".ci/run"]
    process = subprocess.run(command, cwd=checkout, env=kept, capture_output=True, text=True)
    record = checkout / "record"
    ran = record.read_text().split() if record.exists() else []
    return process.returncode == 0, ran, process.stdout + process.stderr


@pytest.mark.parametrize("target", ["test", "ci"])
def test_lint_and_tests_run_in_the_pinned_environment(target: str, checkout: Path) -> None:
    assert make(target, checkout, pinned())[:2] == (True, [*LINT, "pytest"])


@pytest.mark.parametrize("versions", ["3.12 2.13.0", "3.11 2.15.0"])
def test_another_environment_runs_the_tests_and_says_where_lint_runs(versions: str, checkout: Path) -> None:
    (checkout / "faults").touch()
    succeeded, ran, printed = make("test", checkout, versions)
    assert (succeeded, ran) == (True, ["pytest"])
    wanted, got = pinned().replace(" ", " with torch "), versions.replace(" ", " with torch ")
    assert f"needs Python {wanted}; got Python {got}. Use `make clean lint" in printed


@pytest.mark.parametrize("target", ["lint", "ci"])
def test_lint_that_is_asked_for_is_not_left_out(target: str, checkout: Path) -> None:
    succeeded, ran, printed = make(target, checkout, "3.12 2.15.0")
    assert (succeeded, ran) == (False, [])
    assert "got Python 3.12 with torch 2.15.0" in printed


def test_a_fault_of_lint_comes_before_the_tests(checkout: Path) -> None:
    (checkout / "faults").touch()
    assert make("test", checkout, pinned())[:2] == (False, LINT)
