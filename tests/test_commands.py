"""A forked command is what a fresh one is, in all that it can see of itself and does to others."""

import copy
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import hydra.experimental
import pytest
from fairseq import options
from fairseq.dataclass import utils as dataclass_utils

import fairseq_tiedemb.plugin  # noqa: F401 (registers the presets)

from .commands import run_module
from .conftest import RunCommand

# What a module sees when it is run; and what it leaves: text, an error, an exit code.
PROBE = """
import atexit, json, logging, os, random, sys, threading, warnings
import numpy, torch
logging.basicConfig(stream=sys.stdout, level="INFO", format="logged: %(message)s", force="LATE" not in os.environ)
logging.info("something")
seen = {
    "arguments": [os.path.basename(sys.argv[0]), *sys.argv[1:]],
    "name": [__name__, sys.modules["__main__"].__dict__ is globals(), __spec__.name],
    "folder": [os.getcwd(), sys.path[0]],
    "environment": dict(os.environ),
    "terminal": [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "input": sys.stdin.read(),
    "threads": [torch.get_num_threads(), threading.active_count()],
    "torch": [torch.get_default_dtype().is_floating_point, torch.is_grad_enabled()],
    "plugin": "fairseq_tiedemb" in sys.modules,
}
print(json.dumps(seen))
print(json.dumps([random.random(), numpy.random.rand(), torch.rand(1).item()]))
warnings.warn("on stderr")
atexit.register(lambda: print("at exit", file=sys.stderr))
threading.Timer(0.02, lambda: print("a thread that is waited for", file=sys.stderr)).start()
if sys.argv[1] == "raise":
    raise ValueError("seen")
if sys.argv[1] != "end":
    sys.exit(int(sys.argv[1]) if sys.argv[1].isdigit() else sys.argv[1])
"""
# In what fairseq's commands say.
TIMES = r"^[\d-]+ [\d:]+ \||\"\w*(wps|ups|wall)\": \"[\d.]+\"|[\d.,]+\s?(s\b|seconds|sentences/s|tokens/s)|time: .*"

# How the probe ends, and its exit code.
CODES = {"end": 0, "3": 3, "a message": 1, "raise": 1}

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def probe(tmp_path: Path) -> Run:
    (tmp_path / "probe.py").write_text(PROBE)

    def probe(argument: str, *, fresh: bool, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "GIVEN": "a value", **env}
        return run_module(["probe", argument, "a b"], fresh=fresh, env=environment, cwd=tmp_path, input="a line\n")

    return probe


def test_a_fork_sees_what_a_fresh_process_sees(probe: Run) -> None:
    fresh, forked, again = (probe("raise", fresh=each) for each in (True, False, False))
    assert forked.args == fresh.args
    assert forked.returncode == fresh.returncode
    lines = [process.stdout.splitlines() for process in (fresh, forked, again)]
    assert [len(each) for each in lines] == [3, 3, 3]
    assert lines[0][0] == lines[1][0] == "logged: something"
    assert json.loads(lines[0][1]) == json.loads(lines[1][1])
    assert json.loads(lines[1][1])["environment"]["GIVEN"] == "a value"
    numbers = zip(*(json.loads(each[2]) for each in lines), strict=True)
    assert [len(set(each)) for each in numbers] == [3, 3, 3]  # whatever draws them
    # A traceback begins in another place.
    errors = [
        [line for line in each.stderr.splitlines() if not line.startswith(("  File", "    "))]
        for each in (fresh, forked)
    ]
    assert errors[0] == errors[1]
    assert "UserWarning: on stderr" in errors[1][0]


@pytest.mark.parametrize("argument", CODES)
def test_a_fork_ends_as_a_fresh_process_does(argument: str, probe: Run) -> None:
    forked = probe(argument, fresh=False)
    assert forked.returncode == CODES[argument]
    assert forked.stderr.endswith("at exit\n")
    assert "a thread that is waited for" in forked.stderr  # it may speak amid a traceback
    assert ("a message" in forked.stderr.splitlines()) == (argument == "a message")


def test_a_fork_leaves_nothing_to_the_next(probe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = json.loads(probe("end", fresh=False, GIVEN="another").stdout.splitlines()[1])
    second = json.loads(probe("end", fresh=False).stdout.splitlines()[1])
    assert first["environment"]["GIVEN"] == "another"
    assert second == {**first, "environment": {**first["environment"], "GIVEN": "a value"}}


@pytest.mark.parametrize(
    "flags",
    [
        "--arch lstm_nmt_wt --max-source-positions 50",
        "--arch lstm --optimizer adam --adam-betas (0.9,0.98) --lr 0.1,0.2 --update-freq 2 --save-dir it's",
        "--arch transformer_lm --task language_modeling --optimizer nag --sample-break-mode eos",
    ],
)
def test_quick_settings_are_hydras(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after others of the same parts."""
    others = ("--seed", "7", "--clip-norm", "0.5")
    arguments, other = (
        options.parse_args_and_arch(options.get_training_parser(), ["data", *flags.split(), *more])
        for more in ((), others)
    )
    found = [dataclass_utils.convert_namespace_to_omegaconf(each) for each in copy.deepcopy([arguments, other] * 2)]
    monkeypatch.setattr(dataclass_utils, "compose", hydra.experimental.compose)
    monkeypatch.setattr(dataclass_utils, "initialize", hydra.experimental.initialize)
    expected = dataclass_utils.convert_namespace_to_omegaconf(arguments)
    assert found[0] == found[2] == expected != found[1] == found[3]


@pytest.mark.parametrize("fresh", [True, False])
def test_what_takes_too_long_is_killed(fresh: bool, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time\ntime.sleep(100)\n")
    with pytest.raises(subprocess.TimeoutExpired, match="waits.* timed out after 0.1 seconds"):
        run_module(["waits"], fresh=fresh, env=dict(os.environ), cwd=tmp_path, timeout=0.1)


# Warnings of imports, and of hydra, which does not compose the settings of a fork; and what is logged before a command
# configures its log.
OF_A_FRESH_ONE = re.compile(
    "^$|tensorboardX|hydra|Hydra|version_base|'config'|deprecated|UserWarning|See https|products on the CPU"
)


@pytest.mark.slow
def test_fairseqs_commands_say_the_same(
    run_command: RunCommand, text_folder: Path, parallel_data: Path, lm_data: Path, tmp_path: Path
) -> None:
    """But for the times, and what is said while fairseq is imported."""

    def said(fresh: bool) -> list[str]:
        folder = tmp_path / str(fresh)
        flags = "--optimizer adam --lr 0.01 --batch-size 20 --max-epoch 1 --num-workers 0 --log-format json --save-dir"
        nmt = f"--arch lstm_nmt_wt --encoder-embed-dim 8 --decoder-embed-dim 8 --decoder-out-embed-dim 8 {flags}"
        lm = f"--arch zaremba_lm_small --batch-size 7 --tokens-per-sample 5 {flags}"
        path = ("--path", folder / "nmt/checkpoint_last.pt", "--batch-size", 20)
        words = ("--only-source", "--trainpref", text_folder / "test.src", "--destdir", folder / "data")
        commands = [
            run_command("preprocess", *words, fresh=fresh),
            run_command("train", parallel_data, *nmt.split(), folder / "nmt", fresh=fresh),
            run_command("generate", parallel_data, *path, fresh=fresh),
            run_command("interactive", parallel_data, *path[:2], "-s", "src", "-t", "tgt", input="a b\n", fresh=fresh),
            run_command("validate", parallel_data, "--task", "translation", *path, fresh=fresh),
            run_command("train", lm_data, *lm.split(), folder / "lm", fresh=fresh),
            run_command("eval-lm", lm_data, "--path", folder / "lm/checkpoint_last.pt", fresh=fresh),
            run_command("generate", parallel_data, "--path", "none", user_dir=None, check=False, fresh=fresh),
            run_command("hydra-train", "--help", cwd=tmp_path, user_dir=None, fresh=fresh),
            run_command("fairseq_tiedemb.cli", "norms", path[1], "--output", tmp_path / "x.png", fresh=fresh),
        ]
        text = "".join(f"--- stdout\n{each.stdout}--- stderr\n{each.stderr}" for each in commands)
        # A traceback begins in another place.
        lines = [line for line in text.splitlines() if not line.startswith("  ") and not OF_A_FRESH_ONE.search(line)]
        return [re.sub(f"{folder}|{TIMES}", "", line) for line in lines]

    assert said(fresh=False) == said(fresh=True)
