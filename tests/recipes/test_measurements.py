"""The recipe that measures tables 3 and 4: which commands it runs, what it refuses, and a whole run on a few lines."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from ..conftest import RunCommand
from .corpora import write_ptb
from .shell import RECIPES, dry_run, option, refusal, run_recipe

SCRIPT = "measure-tables3-4.sh"


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    (tmp_path / "sets").mkdir()
    for name in ("a", "EN-MEN-TR-3k"):
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
    names = ("similarity", "correlation", "updates", "overlap")
    return [
        words[next(i for i, word in enumerate(words) if word in names) : words.index(">")]
        for words in commands
        if {*names} & {*words}
    ]


def test_commands(sets: Path, tmp_path: Path) -> None:
    commands = dry_run(SCRIPT, RUNS=trained(tmp_path / "runs", seed=7), SETS=sets, SEED=7)
    ptb = tmp_path / "runs/ptb"
    models = [f"{ptb}/{row}-7/checkpoint_last.pt" for row in ("small", "wt")]
    found = measurements(commands)
    assert [words[0] for words in commands if words[0] in ("mkdir", "cat")] == ["mkdir", *["cat"] * 4]
    assert len(found) == len(commands) - 5 == 4
    similarity, correlation, *updates = found
    assert similarity[1:] == [
        *models,
        "--dict",
        f"{ptb}/bin/dict.txt",
        "--sets",
        f"{sets}/EN-MEN-TR-3k.txt",
        f"{sets}/a.txt",
    ]
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
    assert all("fairseq-train" not in words for words in commands[commands.index(train) + 1 :])
    assert len(measurements(commands[commands.index(train) + 1 :])) == len(measurements(commands)) == 4


def test_refusals(tmp_path: Path) -> None:
    for args, variables, message in (
        ([], {}, "SETS: needs a folder with one or more of .*; got ''"),
        ([], {"SETS": tmp_path}, f"SETS: needs a folder with one or more of .*; got '{tmp_path}'"),
        (["wt"], {"SETS": tmp_path}, "needs no argument; got 1"),
    ):
        assert re.search(message, refusal(SCRIPT, *args, RUNS=tmp_path, **variables))


def test_the_header_says_what_to_expect() -> None:
    header = (RECIPES / SCRIPT).read_text().partition("source")[0]
    for word in ("Press & Wolf", "Hardware", "Expected", "Check", "in-out .13, in-tied .31, out-tied .65"):
        assert word in header


@pytest.mark.parametrize("corpus", ["multi30k", "tatoeba-es", "wmt14-enfr"])
def test_overlap(corpus: str, tmp_path: Path) -> None:
    (tmp_path / corpus / "bin").mkdir(parents=True)
    found = measurements(dry_run("measure-table1.sh", corpus, RUNS=tmp_path))
    assert found == [["overlap", f"{tmp_path}/{corpus}/bin"]]
    corpora = {"RUNS": tmp_path / "none", "FROM": tmp_path}
    names = [words[0] for words in dry_run("measure-table1.sh", corpus, **corpora)]
    assert "fairseq-preprocess" in names


def test_overlap_refusals(tmp_path: Path) -> None:
    for args, message in (([], "needs one CORPUS; got 0"), (["ptb"], "CORPUS: needs wmt14-enfr, .*; got ptb")):
        assert re.search(message, refusal("measure-table1.sh", *args, RUNS=tmp_path))


def figures(path: Path) -> dict[str, float]:
    return {name: figure["value"] for name, figure in json.loads(path.read_text())["figures"].items()}


def test_overlap_is_recorded(run_command: RunCommand, tmp_path: Path) -> None:
    data = tmp_path / "runs/tatoeba-es"
    data.mkdir(parents=True)
    (data / "train.es").write_text("a b c d\n" * 5)
    (data / "train.en").write_text("c d e\n" * 5)
    flags = ("--source-lang", "es", "--target-lang", "en", "--joined-dictionary")
    run_command("preprocess", *flags, "--trainpref", data / "train", "--destdir", data / "bin")
    process = run_recipe("measure-table1.sh", "tatoeba-es", RUNS=tmp_path / "runs", RESULTS=tmp_path / "results")
    assert process.returncode == 0, process.stderr
    assert figures(tmp_path / "results/table1/tatoeba-es.json") == {"english": 1, "other": 2, "both": 2, "shared": 40.0}


SIMILARITY = """\
set             pairs     of                    [1]                    [2]                     [3]
EN-MEN-TR-3k    1,048  3,000                      -   0.119 (0.04 to 0.20)    0.130 (0.05 to 0.21)
EN-SIMLEX-999     575    999  -0.025 (-0.06 to 0.11)  0.158 (-0.08 to 0.24)                      -
OWN                 9      9   0.500 (0.10 to 0.80)   0.500 (0.10 to 0.80)    0.500 (0.10 to 0.80)
"""


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (1, ["EN-SIMLEX-999=-0.025", "EN-SIMLEX-999: 575 of 999 pairs, -0.06 to 0.11"]),
        (
            2,
            [
                "EN-MEN-TR-3k=0.119",
                "EN-SIMLEX-999=0.158",
                "EN-MEN-TR-3k: 1,048 of 3,000 pairs, 0.04 to 0.20; EN-SIMLEX-999: 575 of 999 pairs, -0.08 to 0.24",
            ],
        ),
        (3, ["EN-MEN-TR-3k=0.130", "EN-MEN-TR-3k: 1,048 of 3,000 pairs, 0.05 to 0.21"]),
    ],
)
def test_figures_and_intervals_of_each_table(table: int, expected: list[str], tmp_path: Path) -> None:
    log = tmp_path / "similarity.log"
    log.write_text(SIMILARITY)
    script = f'source "{RECIPES}/common.sh"; source "{RECIPES}/vectors.sh"'
    script += f'; set_figures "{log}" {table}; set_note "{log}" {table}'
    process = subprocess.run(["bash", "-c", script, "recipe"], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines() == expected


@pytest.mark.slow
def test_whole_recipe(sets: Path, tmp_path: Path) -> None:
    source = write_ptb(tmp_path / "source", train=500, held_out=50)
    words = sorted(set((tmp_path / "source/ptb.train.txt").read_text().split()))
    pairs = zip(words[:20], words[5:25], strict=True)
    (sets / "EN-MEN-TR-3k.txt").write_text("".join(f"{a} {b} {number}\n" for number, (a, b) in enumerate(pairs)))
    results = tmp_path / "results"
    variables = {**source, "RUNS": tmp_path / "runs", "SETS": sets, "SMOKE": 1, "GPUS": 0, "SPLITS": "test"}
    process = run_recipe(SCRIPT, **variables, RESULTS=results)
    assert process.returncode == 0, process.stderr
    [found] = re.findall(r"^EN-MEN-TR-3k +(\d+) +20" + 3 * r" +(-?0\.\d+) \([^)]*\)", process.stdout, re.M)
    assert found[0] == "20"
    for row, rho in zip(("small-in", "small-out", "wt-tied"), found[1:], strict=True):
        assert figures(results / f"table3/{row}-1.json") == {"EN-MEN-TR-3k": float(rho)}
        note = json.loads((results / f"table3/{row}-1.json").read_text())["note"]
        assert re.fullmatch(r"EN-MEN-TR-3k: 20 of 20 pairs, -?0\.\d\d to -?0\.\d\d", note)
    [of_input] = re.findall(r"^\[1\] +(-?0\.\d+) +(-?0\.\d+)$", process.stdout, re.M)
    [of_output] = re.findall(r"^\[2\] +(-?0\.\d+)$", process.stdout, re.M)
    expected = dict(zip(("in-out", "in-tied", "out-tied"), map(float, (*of_input, of_output)), strict=True))
    assert figures(results / "table4/small-1.json") == expected
    assert process.stdout.count("repeat probability") == 4
    shares = re.findall(r"= (0\.\d+) on average", process.stdout)
    for row, number in (("small", 0), ("wt", 1)):
        recorded = figures(results / f"section3/{row}-1.json")
        assert recorded["share"] == float(shares[number])
        assert recorded["share-of-word"] == float(shares[2 + number])
        assert recorded["rows"] > 1
        assert 0 < recorded["repeats"] < 1
