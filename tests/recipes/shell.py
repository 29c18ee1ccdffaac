"""Runs the recipes, and reads what they would run."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
RECIPES = REPOSITORY / "recipes"
# Real corpora, which may not be part of the project; tests that need them skip where they are absent.
SHARED_DATA = REPOSITORY.parent / "shared" / "data"

needs_sacremoses = pytest.mark.skipif(not shutil.which("sacremoses"), reason="sacremoses is not installed")


def run_recipe(
    name: str, *args: object, status: int | None = 0, **variables: object
) -> subprocess.CompletedProcess[str]:
    """Runs a recipe with the commands of this interpreter's environment, and with these variables and no others.

    It is to end with ``status``, if that is not None.
    """
    command = [RECIPES / name, *map(str, args)]
    process = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, timeout=600)
    assert status in (process.returncode, None), process.stderr
    return process


def environment(**variables: object) -> dict[str, str]:
    """These variables, and those that make the commands of this interpreter's environment run."""
    own = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix}
    return {**own, "OMP_NUM_THREADS": "1", **{key: str(value) for key, value in variables.items()}}


def prepared(folder: Path, ending: str = "") -> Path:
    """A folder for RUNS in which every corpus is there already."""
    corpora = "ptb bbc imdb imdb-lm text8 multi30k wmt14-enfr wmt15-ende wmt16-ende"
    pairs = (f"{name}-{language}" for name in ("tatoeba", "iwslt14") for language in ("de", "es", "fr", "ro"))
    for corpus in (*corpora.split(), *pairs):
        (folder / f"{corpus}{ending}/bin").mkdir(parents=True)
    return folder


def write_programs(folder: Path, scripts: dict[str, str]) -> str:
    """Writes programs in the place of real ones; returns the PATH on which they are first."""
    folder.mkdir(parents=True)
    for name, script in scripts.items():
        (folder / name).write_text(script if script.startswith("#!") else f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def run_python(script: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Runs a program of the recipes with this interpreter."""
    return subprocess.run([sys.executable, script, *map(str, args)], capture_output=True, text=True)


def dry_run(name: str, *args: object, **variables: object) -> list[list[str]]:
    """The words of each command that a recipe would run; what it prints is commands and nothing else."""
    process = run_recipe(name, *args, DRY_RUN=1, **variables)
    commands = [shlex.split(line) for line in process.stdout.splitlines()]
    # Ready to be pasted: each begins with a program, and not with what marks a command.
    assert all(words and words[0][0].isalpha() for words in commands)
    return commands


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Runs one of the programs that turn the files of corpora into text."""
    return run_python(RECIPES / script, *args)


def lines(script: str, source: Path, folder: Path, *args: object) -> dict[str, list[str]]:
    """What such a program makes of a corpus, by file name without `.txt`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    before = ("de",) if script == "tatoeba_text.py" else ()
    process = run(script, source, *before, folder, *args)
    assert process.returncode == 0, process.stderr
    return {path.name.removesuffix(".txt"): path.read_text().splitlines() for path in folder.iterdir()}


def assert_refused(process: subprocess.CompletedProcess[str], message: str, folder: Path) -> None:
    """Refused with this message, and nothing is left that could be taken for a corpus."""
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert not [path for path in folder.rglob("*") if path.name.startswith(("train.", "valid.", "test.", "out."))]


def refusal(name: str, *args: object, **variables: object) -> str:
    """What a recipe says that refuses what it is given, before the first command."""
    process = run_recipe(name, *args, DRY_RUN=1, **variables, status=1)
    assert process.stdout == ""
    return process.stderr


def option(command: list[str], name: str) -> str:
    """The value of an option that a command has once."""
    assert command.count(name) == 1, f"{name} in {command}"
    return command[command.index(name) + 1]


def command_of(commands: list[list[str]], name: str) -> list[str]:
    """The one command of this name."""
    found = [words for words in commands if words[0] == name]
    assert len(found) == 1, f"{name}: {len(found)} times"
    return found[0]
