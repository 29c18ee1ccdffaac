"""`recipes/record.py`: figures out of the logs of the stock commands, and everything that it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import record
from bookkeeping.data import read_results, read_table

import fairseq_tiedemb
from fairseq_tiedemb import cli
from fairseq_tiedemb.results.environment import versions

from ..results.logs import BLEU, EVAL_LM, SIGNATURE, TRAIN, USAGE
from .project import TABLE, Project
from .shell import RECIPES, write_programs

NGRAM = """\
modified Kneser-Ney, order 5: 929,589 tokens, 9,999 types with </s>; n-grams by order: 10,000
   predicted      <unk>  perplexity  file
      73,760      3,485      148.04  text/valid.txt
      82,430      4,794      141.21  text/test.txt
0.1 s
"""


def test_a_folder_of_a_training(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = {"nvidia-smi": '[[ $1 == --query-gpu=name ]] && echo "NVIDIA H200" && echo "NVIDIA H200"'}
    monkeypatch.setenv("PATH", write_programs(project.folder / "programs", gpus))
    for name, text in (
        ("score-test.log", EVAL_LM.format(117.13)),
        ("bleu.bleu", BLEU.format("42.74")),
        ("train.log", TRAIN),
        ("usage.jsonl", USAGE),
        ("norms.svg", "<svg/>"),
    ):
        project.write(f"run/{name}", text)
    (project.folder / "run/plots.svg").mkdir()  # is no picture
    status, message = project.record("small", "--folder", project.folder / "run", "--gpu", seed=2)
    assert status == 0, message
    assert "recorded: small, small (seed 2): test 117.1 perplexity, bleu 42.74 BLEU" in message
    result = project.result("small-2")
    environment = result.pop("environment")
    assert result == {
        "table": "small",
        "row": "small",
        "seed": 2,
        "figures": {
            "test": {"value": 117.13, "unit": "perplexity", "paper": 114.5, "tokens": 82430},
            "bleu": {"value": 42.74, "unit": "BLEU", "signature": SIGNATURE},
            "parameters": {"value": 4652402, "unit": "parameters"},
        },
        "command": "recipes/x.sh",
        # Seconds of all runs add up; memory is the largest.
        "usage": {"cpu_seconds": 90.5, "wall_seconds": 101.0, "peak_memory": 5, "runs": 2, "commits": ["aaa", "bbb+"]},
        "curve": {"train": {"1": 512.0, "2": 256.5}, "valid": {"1": 300.25}},
    }
    assert environment["versions"] == versions()
    assert environment["versions"]["fairseq_tiedemb"] == fairseq_tiedemb.__version__
    assert "none" not in environment["versions"].values()
    assert environment["accelerators"] == ["NVIDIA H200"]
    assert environment["processor"]
    assert (project.results / "small/small-2.norms.svg").read_text() == "<svg/>"

    # Recorded again, it is replaced, its pictures too.
    (project.folder / "run/norms.svg").unlink()
    assert project.record("small", "--folder", project.folder / "run", "--figure", "test=1", seed=2)[0] == 0
    assert project.result("small-2")["figures"]["test"] == {"value": 1, "unit": "perplexity", "paper": 114.5}
    assert [path.name for path in (project.results / "small").iterdir()] == ["small-2.json"]


@pytest.mark.parametrize("text", ["{bad", "{}", "[1]"])
def test_a_broken_result_is_named(text: str, project: Project) -> None:
    path = project.write("results/small/wt-1.json", text)
    status, message = project.record("wt", "--figure", "test=1")
    assert (status, f"{path}: needs what recipes/README.md says of its fields" in message) == (2, True)
    assert path.read_text() == text


def test_without_nvidia_smi_no_gpu_is_named(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", write_programs(project.folder / "programs", {"nvidia-smi": "exit 9"}))
    assert project.record("small", "--figure", "test=1", "--gpu", seed=3)[0] == 0
    assert project.result("small-3")["environment"]["accelerators"] == []


def test_flags(project: Project) -> None:
    ngram = project.write("ngram.log", NGRAM)
    scores = project.write("scores.json", json.dumps({"name": "BLEU", "score": 42.7, "signature": "x"}))
    assert project.record("small", "--ngram", f"test={ngram}", "--bleu", f"bleu={scores}", seed=None)[0] == 0
    assert project.result("small")["figures"] == {
        "test": {"value": 141.21, "unit": "perplexity", "paper": 114.5, "tokens": 82430},
        "bleu": {"value": 42.7, "unit": "BLEU", "signature": "x"},
    }
    scores.write_text('{"name": "BLEU", "score": NaN, "signature": "x"}')
    status, message = project.record("small", "--bleu", f"bleu={scores}", seed=None)
    assert status != 0
    assert "needs a finite number; got nan" in message
    log = project.write("eval.log", EVAL_LM.format(99) + EVAL_LM.format(98.5))
    flags = ("--eval-lm", f"test={log}", "--figure", "parameters=1,234", "--figure", "bleu=1", "--note", "n")
    assert project.record("wt", *flags)[0] == 0
    result = project.result("wt-1")
    found = {name: figure["value"] for name, figure in result["figures"].items()}
    assert found == {"test": 98.5, "bleu": 1, "parameters": 1234}
    assert result["note"] == "n"
    fewer = ("--figure", "test=1", "--note", "")
    status, message = project.record("wt", *fewer)
    assert (status, project.result("wt-1")) == (0, result)
    assert "wt-1.json has bleu, parameters, too. Remove it first, or measure all." in message
    assert project.record("wt", *fewer, "--figure", "parameters=1", "bleu=2")[0] == 0
    assert "note" not in project.result("wt-1"), "an empty note is none"


@pytest.mark.parametrize(
    ("text", "low", "high"), [("1.5[1.25-1.75]", 1.25, 1.75), ("-2[-3--1]", -3, -1), ("1e-3[1E-4-1e-2]", 1e-4, 1e-2)]
)
def test_a_median_with_its_range(text: str, low: float, high: float, project: Project) -> None:
    assert project.record("wt", "--figure", f"test={text}")[0] == 0
    figure = project.result("wt-1")["figures"]["test"]
    assert (figure["value"], figure["low"], figure["high"]) == (float(text.partition("[")[0]), low, high)


def test_a_row_of_other_settings(project: Project) -> None:
    assert project.record("wt,UPDATES=5", "--if-known", "--figure", "test=1")[0] == 0
    assert project.result("wt,UPDATES=5-1")["row"] == "wt,UPDATES=5"
    status, message = project.record("wt,UPDATES=6", "--if-known", "--figure", "test=1")
    assert (status, message) == (0, "not recorded: the table small has no row wt,UPDATES=6\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("small wtt", "ROW: needs a row of the table small; got wtt. Use small, wt, wt,UPDATES=5."),
        ("../tables/small wt", "TABLE: needs a table of {folder}/tables; got ../tables/small. Use small."),
        ("small wt", "needs a figure of one of the columns test, bleu, parameters; got none."),
        ("small wt --command=", "--command: needs one line of text; got ''."),
        ("small wt --note=a\n", "--note: needs one line of text; got 'a\\n'."),
        ("small wt --figure test=1 test=2", "--figure: needs each column once; got test, as --figure has."),
        ("small wt --seed -1", "--seed: needs 0 or more; got -1."),
        ("small wt --folder {folder}/none", "--folder: needs a folder; got {folder}/none."),
        ("small wt --figure tset=1", "--figure: needs a column of the table small; got tset. Use test, bleu"),
        ("small wt --figure test", "--figure: needs COLUMN=VALUE; got test. Use test=VALUE."),
        ("small wt --figure test=inf", "--figure: needs a finite number; got inf."),
        ("small wt --figure test=2[1]", "--figure: needs VALUE or VALUE[LOW-HIGH]; got 2[1]. Use"),
        ("small wt --figure test=3[1-2]", "--figure: needs a value within its range; got 3[1-2]."),
        ("small wt --figure test=1,5", "--figure: needs a finite number; got 1,5."),
        ("small wt --eval-lm bleu={log}", "--eval-lm: needs a column of perplexity; got bleu, of BLEU."),
        ("small wt --bleu bleu={log}", "needs what sacrebleu printed, `BLEU|... = X` or JSON; got {log}"),
        ("small wt --eval-lm test={empty}", "`Perplexity: X`; got {empty}, which lacks them."),
        ("small wt --eval-lm test={log}", "--eval-lm: needs a finite number; got nan in {log}."),
        ("small wt --eval-lm test={folder}/no.log", "got {folder}/no.log (No such file or directory)."),
        ("small wt --ngram test={log}", "--ngram: needs the table of fairseq-tiedemb ngram with the text test"),
    ],
)
def test_refused(arguments: str, message: str, project: Project) -> None:
    places = {"folder": project.folder, "log": project.write("nan.log", EVAL_LM.format("nan"))}
    places["empty"] = project.write("empty.log", "Evaluated 5 tokens\n")
    words = [word.format(**places) for word in arguments.split(" ")]
    status, stderr = project.run(record.create_parser, "--command", "x", *words)
    assert status == 2
    assert message.format(**places) in stderr
    assert not list(project.results.rglob("*.json"))


def test_a_file_is_of_one_row_and_seed(project: Project) -> None:
    """`wt` with seed 1 and `wt-1` without one would have the same file, and pictures of `wt` stand beside `wt.b`'s."""
    path = project.write_table(
        {**TABLE, "rows": [*TABLE["rows"], *({"name": name, "label": name} for name in ("wt-1", "wt.b"))]}
    )
    assert project.record("wt", "--figure", "test=1", seed=1)[0] == 0
    status, stderr = project.record("wt-1", "--figure", "test=2", seed=None)
    assert status == 2
    assert "/small/wt-1.json, which has the row wt with the seed 1. Use another name" in stderr
    assert project.result("wt-1")["figures"]["test"]["value"] == 1
    run = project.write("run/map.svg", "<svg/>").parent
    assert project.record("wt.b", "--figure", "test=3", "--folder", run, seed=None)[0] == 0
    assert project.record("wt", "--figure", "test=4", seed=None)[0] == 0
    assert (project.results / "small/wt.b.map.svg").exists()
    results = read_results(project.results, read_table(path))
    assert {result.stem: [*result.pictures] for result in results} == {"wt-1": [], "wt": [], "wt.b": ["map"]}


def test_a_place_that_is_taken(project: Project) -> None:
    folder = project.write("taken", "")
    arguments = ["small", "wt", "--command", "x", "--figure", "test=1", "--tables", str(project.tables)]
    assert cli.main([*arguments, "--results", str(folder)], record.create_parser()) == 2
    message = f"--results: needs a folder that can be written; got {folder}/small (Not a directory)."
    assert message in project.capsys.readouterr().err


def test_nothing_is_left_where_the_disk_is_full(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object, **kwargs: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    status, stderr = project.record("small", "--figure", "test=1")
    assert status == 2
    assert "No space left on device" in stderr
    assert not list((project.results / "small").iterdir())


def test_a_signal_ends_it_by_its_own_name() -> None:
    code = "import signal, record\nfrom fairseq_tiedemb import cli\n"
    code += "def end(arguments): raise KeyboardInterrupt(signal.SIGTERM)\n"
    code += "record.run = end\ncli.main(['table', 'row', '--command', 'c'], record.create_parser())"
    process = subprocess.run([sys.executable, "-c", code], cwd=RECIPES, capture_output=True, text=True)
    assert process.stderr == "record.py: ended by SIGTERM\n"
    assert process.returncode == -15


def test_programs_start_without_torch() -> None:
    code = "import sys, record, make_pages, measure, fairseq_tiedemb.cli.report\n"
    code += "print(sorted({'torch', 'fairseq', 'numpy', 'matplotlib'} & set(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], cwd=RECIPES, capture_output=True, text=True)
    assert process.stdout == "[]\n", process.stderr
