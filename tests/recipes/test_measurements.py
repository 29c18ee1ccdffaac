"""The recipe that measures tables 3 and 4: which commands it runs, what it refuses, and a whole run on a few lines."""

import re
from pathlib import Path

import pytest

from .corpora import write_ptb
from .shell import RECIPES, dry_run, option, run_recipe

SCRIPT = "measure-tables3-4.sh"


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    (tmp_path / "sets").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"sets/{name}.txt").write_text("N <unk> 1\n<unk> N 2\n")
    return tmp_path / "sets"


def trained(folder: Path, seed: int = 1) -> Path:
    """A folder for RUNS in which the corpus is prepared, and the two models are trained."""
    (folder / "ptb/bin").mkdir(parents=True)
    for row in ("small", "wt"):
        (folder / f"ptb/{row}-{seed}").mkdir()
        (folder / f"ptb/{row}-{seed}/checkpoint_last.pt").touch()
    return folder


def measurements(commands: list[list[str]]) -> list[list[str]]:
    """The commands of this package, from their names on; where it is not installed, the checkout's are run."""
    names = ("similarity", "correlation", "updates")
    return [
        words[next(i for i, word in enumerate(words) if word in names) :] for words in commands if {*names} & {*words}
    ]


def test_commands(sets: Path, tmp_path: Path) -> None:
    commands = dry_run(SCRIPT, RUNS=trained(tmp_path / "runs", seed=7), SETS=sets, SEED=7)
    ptb = tmp_path / "runs/ptb"
    models = [f"{ptb}/{row}-7/checkpoint_last.pt" for row in ("small", "wt")]
    found = measurements(commands)
    assert len(found) == len(commands)
    similarity, correlation, *updates = found
    assert similarity[1:] == [*models, "--dict", f"{ptb}/bin/dict.txt", "--sets", f"{sets}/a.txt", f"{sets}/b.txt"]
    assert correlation[1:] == [*models, "--dict", f"{ptb}/bin/dict.txt"]
    for words in updates:
        assert words[1:5] == [f"{ptb}/bin", "--checkpoint", *models]
    assert [len(words) for words in updates][0] == 5
    assert option(updates[1], "--batch-size") == option(updates[1], "--tokens-per-sample") == "1"


def test_what_is_not_trained_is_trained_first(sets: Path, tmp_path: Path) -> None:
    runs = trained(tmp_path / "runs")
    (runs / "ptb/wt-1/checkpoint_last.pt").unlink()
    commands = dry_run(SCRIPT, RUNS=runs, SETS=sets)
    (train,) = (words for words in commands if words[0] == "fairseq-train")
    assert option(train, "--arch") == "zaremba_lm_small_wt"
    assert option(train, "--save-dir") == f"{runs}/ptb/wt-1"
    assert commands.index(train) < len(commands) - len(measurements(commands)) == len(commands) - 4


def test_refusals(tmp_path: Path) -> None:
    for args, variables, message in (
        ([], {}, "SETS: needs a folder with sets .*; got ''"),
        ([], {"SETS": tmp_path}, f"SETS: needs a folder with sets .*; got '{tmp_path}'"),
        (["wt"], {"SETS": tmp_path}, "needs no argument; got 1"),
    ):
        process = run_recipe(SCRIPT, *args, RUNS=tmp_path, DRY_RUN=1, **variables)
        assert (process.returncode, process.stdout) == (1, "")
        assert re.search(message, process.stderr)


def test_the_header_says_what_to_expect() -> None:
    header = (RECIPES / SCRIPT).read_text().partition("source")[0]
    for word in ("Press & Wolf", "Hardware", "Expected", "Check", "in-out .13, in-tied .31, out-tied .65"):
        assert word in header


@pytest.mark.slow
def test_whole_recipe(sets: Path, tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    words = sorted(set((tmp_path / "source/ptb.train.txt").read_text().split()))
    pairs = zip(words[:20], words[5:25], strict=True)
    (sets / "a.txt").write_text("".join(f"{a} {b} {number}\n" for number, (a, b) in enumerate(pairs)))
    variables = {**source, "RUNS": tmp_path / "runs", "SETS": sets, "SMOKE": 1, "GPUS": 0, "SPLITS": "test"}
    process = run_recipe(SCRIPT, **variables)
    assert process.returncode == 0, process.stderr
    found = re.findall(r"^a +(\d+) +20 +(-?0\.\d+) .*(-?0\.\d+) .*(-?0\.\d+) ", process.stdout, re.M)
    assert len(found) == 1
    assert found[0][0] == "20"
    assert len(re.findall(r"^\[1\] +-?0\.\d+ +-?0\.\d+$", process.stdout, re.M)) == 1
    assert process.stdout.count("repeat probability") == 4
