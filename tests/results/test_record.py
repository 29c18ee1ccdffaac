"""`fairseq-tiedemb record`: figures out of the logs of the stock commands, and everything that it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fairseq_tiedemb
from fairseq_tiedemb import cli
from fairseq_tiedemb.results.environment import versions
from fairseq_tiedemb.results.records import read_results
from fairseq_tiedemb.results.tables import find_table

from .example import BLEU, EVAL_LM, NGRAM, SIGNATURE, TABLE, TRAIN, USAGE, Project


def test_a_folder_of_a_training(project: Project) -> None:
    for name, text in (
        ("score-test.log", EVAL_LM.format(117.13)),
        ("bleu.bleu", BLEU.format("42.74")),
        ("train.log", TRAIN),
        ("usage.jsonl", USAGE),
        ("norms.svg", "<svg/>"),
    ):
        project.write(f"run/{name}", text)
    (project.folder / "run/plots.svg").mkdir()  # is no picture
    status, message = project.record("small", "--folder", project.folder / "run", seed=2)
    assert status == 0
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
        "usage": {
            "cpu_seconds": 90.5,
            "wall_seconds": 101.0,
            "peak_memory": 5,
            "runs": 2,
            "commits": ["aaa", "bbb+"],
        },
        "curve": {"train": {"1": 512.0, "2": 256.5}, "valid": {"1": 300.25}},
    }
    assert environment["versions"] == versions()
    assert environment["versions"]["fairseq_tiedemb"] == fairseq_tiedemb.__version__
    assert "none" not in environment["versions"].values()
    assert environment["accelerators"] == ["NVIDIA H100 80GB HBM3"]
    assert environment["processor"]
    assert (project.results / "small/small-2.norms.svg").read_text() == "<svg/>"

    # Recorded again, it is replaced, its pictures too.
    (project.folder / "run/norms.svg").unlink()
    assert project.record("small", "--folder", project.folder / "run", "--figure", "test=1", seed=2)[0] == 0
    assert project.result("small-2")["figures"]["test"] == {"value": 1, "unit": "perplexity", "paper": 114.5}
    assert [path.name for path in (project.results / "small").iterdir()] == ["small-2.json"]


def test_flags(project: Project) -> None:
    ngram = project.write("ngram.log", NGRAM)
    scores = project.write("scores.json", json.dumps({"name": "BLEU", "score": 42.7, "signature": "x"}))
    assert project.record("small", "--ngram", f"test={ngram}", "--bleu", f"bleu={scores}", seed=None)[0] == 0
    assert project.result("small")["figures"] == {
        "test": {"value": 141.21, "unit": "perplexity", "paper": 114.5, "tokens": 82430},
        "bleu": {"value": 42.7, "unit": "BLEU", "signature": "x"},
    }
    log = project.write("eval.log", EVAL_LM.format(99) + EVAL_LM.format(98.5))
    assert project.record("wt", "--eval-lm", f"test={log}", "--figure", "parameters=1,234", "--note", "n")[0] == 0
    result = project.result("wt-1")
    assert result["figures"]["test"]["value"] == 98.5
    assert result["figures"]["parameters"]["value"] == 1234
    assert result["note"] == "n"


@pytest.mark.parametrize(
    ("text", "low", "high"), [("1.5[1.25-1.75]", 1.25, 1.75), ("-2[-3--1]", -3, -1), ("1e-3[1E-4-1e-2]", 1e-4, 1e-2)]
)
def test_a_median_with_its_range(text: str, low: float, high: float, project: Project) -> None:
    assert project.record("wt", "--figure", f"test={text}")[0] == 0
    found = project.result("wt-1")["figures"]["test"]
    assert (found["value"], found["low"], found["high"]) == (float(text.partition("[")[0]), low, high)


@pytest.mark.parametrize(("text", "shown"), [("1e27", "1e+27"), ("9" * 300, "1e+300")])
def test_large_figures_are_recorded_and_reported(text: str, shown: str, project: Project) -> None:
    status, message = project.record("wt", "--figure", f"test={text}")
    assert (status, f"test {shown} perplexity" in message) == (0, True)
    assert project.run("report", "--output", project.folder)[0] == 0
    assert f"| Small+WT | {shown} | 112.4 |" in (project.folder / "pages/language-models.md").read_text()


def test_a_flag_may_be_given_again(project: Project) -> None:
    assert project.record("wt", "--figure", "test=1", "--figure", "parameters=2", "--note", "")[0] == 0
    result = project.result("wt-1")
    assert set(result["figures"]) == {"test", "parameters"}
    assert "note" not in result, "an empty note is none"


def test_a_row_of_other_settings(project: Project) -> None:
    assert project.record("wt,UPDATES=5", "--if-known", "--figure", "test=1")[0] == 0
    assert project.result("wt,UPDATES=5-1")["row"] == "wt,UPDATES=5"
    status, message = project.record("wt,UPDATES=6", "--if-known", "--figure", "test=1")
    assert (status, message) == (0, "not recorded: the table small has no row wt,UPDATES=6\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["small", "wt,UPDATES=6"],
            "ROW: needs a row of the table small; got wt,UPDATES=6. Use small, wt, wt,UPDATES=5.",
        ),
        (["smal", "wt"], "TABLE: needs a table of {folder}/tables; got smal. Use small."),
        (["../tables/small", "wt"], "TABLE: needs a table of {folder}/tables; got ../tables/small. Use small."),
        (["small", "wt"], "needs a figure of one of the columns test, bleu, parameters; got none."),
        (["small", "wt", "--command", ""], "--command: needs one line of text; got ''."),
        (["small", "wt", "--command", "a\nb"], "--command: needs one line of text; got 'a\\nb'."),
        (["small", "wt", "--note", "a\n"], "--note: needs one line of text; got 'a\\n'."),
        (["small", "wt", "--note", " "], "--note: needs one line of text; got ' '."),
        (
            ["small", "wt", "--figure", "test=1", "test=2"],
            "--figure: needs each column once; got test, as --figure has.",
        ),
        (
            ["small", "wt", "--ngram", "test={ngram}", "--figure", "test=2"],
            "--figure: needs each column once; got test, as --ngram has.",
        ),
        (["small", "wt", "--seed", "-1"], "--seed: needs 0 or more; got -1."),
        (["small", "wt", "--folder", "{folder}/none"], "--folder: needs a folder; got {folder}/none."),
        (
            ["small", "wt", "--figure", "tset=1"],
            "--figure: needs a column of the table small; got tset. Use test, bleu",
        ),
        (["small", "wt", "--figure", "test"], "--figure: needs COLUMN=VALUE; got test. Use test=VALUE."),
        (["small", "wt", "--bleu", "bleu="], "--bleu: needs COLUMN=FILE; got bleu=. Use test=FILE."),
        (["small", "wt", "--figure", "test=inf"], "--figure: needs a finite number; got inf."),
        (["small", "wt", "--figure", "test=2[1-many]"], "--figure: needs a finite number; got many."),
        (["small", "wt", "--figure", "test=2[1]"], "--figure: needs VALUE or VALUE[LOW-HIGH]; got 2[1]. Use"),
        (["small", "wt", "--figure", "test=3[1-2]"], "--figure: needs a value within its range; got 3[1-2]."),
        (["small", "wt", "--figure", "test=1,5"], "--figure: needs a finite number; got 1,5."),
        (["small", "wt", "--figure", "test=many"], "--figure: needs a finite number; got many."),
        (["small", "wt", "--eval-lm", "bleu={log}"], "--eval-lm: needs a column of perplexity; got bleu, of BLEU."),
        (["small", "wt", "--bleu", "bleu={log}"], "needs what sacrebleu printed, `BLEU|... = X` or JSON; got {log}"),
        (["small", "wt", "--eval-lm", "test={empty}"], "`Perplexity: X`; got {empty}, which lacks them."),
        (["small", "wt", "--eval-lm", "test={log}"], "--eval-lm: needs a finite number; got nan in {log}."),
        (["small", "wt", "--eval-lm", "test={folder}/no.log"], "got {folder}/no.log (No such file or directory)."),
        (
            ["small", "wt", "--ngram", "test={log}"],
            "--ngram: needs the table of fairseq-tiedemb ngram with the text test",
        ),
    ],
)
def test_refused(arguments: list[str], message: str, project: Project) -> None:
    places = {"folder": project.folder, "log": project.write("nan.log", EVAL_LM.format("nan"))}
    places["empty"] = project.write("empty.log", "Evaluated 5 tokens\n")
    places["ngram"] = project.write("ngram.log", NGRAM)
    words = [word.format(**places) for word in arguments]
    status, stderr = project.run("record", "--command", "x", *words)
    assert status == 2
    assert message.format(**places) in stderr
    assert not list(project.results.rglob("*.json"))


def test_a_file_is_of_one_row_and_seed(project: Project) -> None:
    """`wt` with seed 1 and `wt-1` without one would have the same file, and pictures of `wt` stand beside `wt.b`'s."""
    project.write_table(
        {**TABLE, "rows": [*TABLE["rows"], *({"name": name, "label": name} for name in ("wt-1", "wt.b"))]}
    )
    assert project.record("wt", "--figure", "test=1", seed=1)[0] == 0
    status, stderr = project.record("wt-1", "--figure", "test=2", seed=None)
    assert status == 2
    assert "ROW, --seed: need a file of their own; got " in stderr
    assert "/small/wt-1.json, which has the row wt with the seed 1. Use another name" in stderr
    assert project.result("wt-1")["figures"]["test"]["value"] == 1
    run = project.write("run/map.svg", "<svg/>").parent
    assert project.record("wt.b", "--figure", "test=3", "--folder", run, seed=None)[0] == 0
    assert project.record("wt", "--figure", "test=4", seed=None)[0] == 0
    assert (project.results / "small/wt.b.map.svg").exists()
    results = read_results(project.results, find_table(project.tables, "small", flag="--tables"))
    assert {result.stem: [*result.pictures] for result in results} == {"wt-1": [], "wt": [], "wt.b": ["map"]}


def test_refused_usage(project: Project) -> None:
    run = project.write("run/score-test.log", EVAL_LM.format(5)).parent
    for text, message in (
        ("", "usage.jsonl: needs a line for each run; got none."),
        ("{}\n{", "usage.jsonl: needs a JSON object on each line; got another line 2."),
        ("{}", "usage.jsonl: line 1.cpu_seconds: needs a finite number; got none."),
        ("[]", "usage.jsonl: needs a JSON object on each line; got another line 1."),
    ):
        project.write("run/usage.jsonl", text)
        status, stderr = project.record("small", "--folder", run)
        assert status == 2
        assert message in stderr


@pytest.mark.parametrize("name", ["taken", "taken/below"])
def test_refused_places(name: str, project: Project) -> None:
    project.write("taken", "")
    folder = project.folder / name
    arguments = ["record", "small", "wt", "--command", "x", "--figure", "test=1", "--tables", str(project.tables)]
    assert cli.main([*arguments, "--results", str(folder)]) == 2
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


def test_it_starts_without_torch() -> None:
    code = "import sys, fairseq_tiedemb.cli.record, fairseq_tiedemb.cli.report, fairseq_tiedemb.cli.measure\n"
    code += "print(sorted({'torch', 'fairseq', 'numpy', 'matplotlib'} & set(sys.modules)))"
    root = Path(fairseq_tiedemb.__file__).parent.parent
    process = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert process.stdout == "[]\n", process.stderr
