"""`recipes/make_pages.py`: what it makes of the data, byte for byte, and what data it refuses."""

import json
import re
import shutil
import statistics
from pathlib import Path
from typing import Any

import make_pages
import pytest

from fairseq_tiedemb import cli

from ..results.logs import EVAL_LM, TRAIN, USAGE
from .project import TABLE, Project
from .shell import RECIPES, REPOSITORY


def filled(project: Project) -> str:
    """The page of the subject of the example with three results: two seeds of one row, and one with a curve."""
    for seed, value in ((1, 117.1), (2, 116.84)):
        assert project.record("small", "--figure", f"test={value}", "parameters=4,652,402", seed=seed)[0] == 0
    project.write("run/train.log", TRAIN)
    project.write("run/score-test.log", EVAL_LM.format(112.9))
    assert project.record("wt", "--folder", project.folder / "run")[0] == 0
    assert project.make_pages()[0] == 0
    return project.page()


def test_tables_in_markdown(project: Project) -> None:
    text = filled(project)
    mean, spread = 116.97, statistics.stdev([117.1, 116.84])
    assert text.partition("## A table\n\n")[2].partition("\n\nSource")[0].splitlines() == [
        "| row | test, perplexity ↓ | paper | parameters | seeds |",
        "| --- | --- | --- | --- | --- |",
        f"| Small | {mean:.1f} ± {spread:.1f} | 114.5 | 4,652,402 | 2 |",
        "| Small+WT | 112.9 | 112.4 | 4,652,402 | 1 |",
    ]
    assert "Source: A & B (2016), table 1.\n\nOne `note`.\n" in text
    assert "Not run: [1 row](not-run.md#small)." in text
    assert "Each run" not in text, "dates, commits and commands are on the page"
    (versions,) = re.findall(r"Measured on .*", text)
    page = (project.folder / "report.html").read_text()
    assert versions.count("torch") == 1
    assert page.count("torch") == 1
    details = re.findall(r"<tr>.*?</tr>", page.partition("<summary>Each run</summary>")[2])[1:]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)[:4] for row in details]
    assert cells[:2] == [["Small", "1", "117.1", "4,652,402"], ["Small", "2", "116.8", "4,652,402"]]


def test_versions_are_in_the_order_of_their_numbers(project: Project) -> None:
    for seed, version in enumerate(("0.1.9", "0.1.11"), 1):
        assert project.record("small", "--seed", str(seed), "--figure", "test=5")[0] == 0
        result = project.result(f"small-{seed}")
        result["environment"]["versions"] = {"torch": version}
        project.write(f"results/small/small-{seed}.json", json.dumps(result))
    assert project.make_pages()[0] == 0
    assert "with torch 0.1.9 to 0.1.11." in project.page()


def test_each_run_has_its_commits_and_its_command(project: Project) -> None:
    assert project.record("small", "--figure", "test=5")[0] == 0
    result = project.result("small-1")
    result["environment"] |= {"commit": "a" * 40, "dirty": True}
    usage = {"cpu_seconds": 90, "wall_seconds": 100, "peak_memory": 5, "runs": 2, "commits": ["b" * 40 + "+"]}
    project.write("results/small/small-1.json", json.dumps(result | {"usage": usage}))
    assert project.make_pages()[0] == 0
    details = (project.folder / "report.html").read_text().partition("<summary>Each run</summary>")[2]
    assert ">aaaaaaaaa+ (trained: bbbbbbbbb+)<" in details
    assert ">recipes/x.sh<" in details


def test_what_was_not_run_is_one_list(project: Project) -> None:
    """With hardware and time, the row's own or the table's; and links of a version ago lead to a link to it."""
    rows = [*TABLE["rows"], {"name": "large", "label": "Large", "command": "recipes/y.sh large", "needs": "one GPU"}]
    project.write_table(TABLE | {"rows": rows, "needs": "one core, an hour"})
    assert project.record("small", "--figure", "test=5")[0] == 0
    assert project.make_pages()[0] == 0
    listed = (project.folder / "pages/not-run.md").read_text().splitlines()
    assert [line for line in listed if line.startswith("|")][2:] == [
        '| <a name="small"></a>A table | Small+WT | one core, an hour | [x.sh](../x.sh) |',
        "| A table | Small+WT, 5 updates | one core, an hour | – |",
        "| A table | Large | one GPU | [y.sh](../y.sh) |",
    ]
    assert (
        '<a name="small"></a>[Language models](pages/language-models.md)' in (project.folder / "RESULTS.md").read_text()
    )


def test_rows_of_one_training_say_so(project: Project) -> None:
    project.write("run/train.log", TRAIN)
    project.write("run/usage.jsonl", USAGE)
    for row, seed in (("small", 1), ("wt", 1), ("wt", 2), ("wt,UPDATES=5", 1)):
        if row == "wt,UPDATES=5":  # another training
            project.write("run/train.log", TRAIN.replace("512", "513"))
            project.write("run/usage.jsonl", USAGE.replace("60.5", "61.5"))
        assert project.record(row, "--folder", project.folder / "run", seed=seed)[0] == 0
    assert project.make_pages()[0] == 0
    text = project.page()
    assert "\nRows of one training, which took its CPU minutes and memory once: (Small; Small+WT).\n" in text
    page = (project.folder / "report.html").read_text()
    legend = re.findall(r"<text[^>]*>(Small[^<]*)</text>", page)
    assert legend == ["Small; Small+WT", "Small+WT, 5 updates"], "the curves of one training are drawn once"


def test_cpu_minutes_and_memory_are_those_of_cpus_where_a_gpu_trained_other_seeds(project: Project) -> None:
    project.write("run/train.log", TRAIN)
    for seed, seconds in ((1, "61.5"), (2, "6.1"), (3, "6.3")):
        project.write("run/usage.jsonl", USAGE.replace("60.5", seconds))
        assert project.record("small", "--folder", project.folder / "run", seed=seed)[0] == 0
        if seed > 1:
            values = project.result(f"small-{seed}")
            values["environment"]["accelerators"] = ["A GPU"]
            values["usage"]["peak_memory"] += 7_000_000_000
            project.write(f"results/small/small-{seed}.json", json.dumps(values))
    usage = project.result("small-1")["usage"]
    minutes, memory = usage["cpu_seconds"] / 60, usage["peak_memory"] / 1e9
    assert project.make_pages()[0] == 0
    assert re.search(rf"\| Small \|.* \| 3 \| {minutes:.1f} \| {memory:.1f} \|", project.page()), project.page()


def test_the_same_data_make_the_same_bytes(project: Project) -> None:
    filled(project)
    first = {name: (project.folder / name).read_bytes() for name in ("RESULTS.md", "pages/not-run.md", "report.html")}
    assert project.make_pages()[0] == 0
    assert {name: (project.folder / name).read_bytes() for name in first} == first


def test_every_committed_result_has_its_commit() -> None:
    for path in (RECIPES / "results").glob("*/*.json"):
        environment = json.loads(path.read_text())["environment"]
        assert re.fullmatch("[0-9a-f]{40}", environment["commit"]), path


def test_the_committed_reports_are_those_of_the_data(tmp_path: Path) -> None:
    """`make report` rebuilds the texts on results and what other texts quote, byte for byte."""
    (command,) = re.findall(r"make_pages.py --html build --fill (.*)", (REPOSITORY / "Makefile").read_text())
    quoting = command.split()
    (tmp_path / "recipes").mkdir()
    for name in quoting:
        assert "<!-- results:" in (REPOSITORY / name).read_text()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    flags = [f"--tables={RECIPES}/tables", f"--results={RECIPES}/results", f"--output={tmp_path}/recipes", "--fill"]
    assert cli.main([*flags, *(str(tmp_path / name) for name in quoting)], make_pages.create_parser()) == 0
    pages = [f"recipes/pages/{path.name}" for path in (REPOSITORY / "recipes/pages").iterdir()]
    assert sorted(pages) == sorted(f"recipes/pages/{path.name}" for path in (tmp_path / "recipes/pages").iterdir())
    for name in ("recipes/RESULTS.md", "recipes/FINDINGS.md", *pages, *quoting):
        made = (tmp_path / name).read_bytes()
        assert made == (REPOSITORY / name).read_bytes(), f"{name} is not of the data. Use make report."


def test_results_are_read_in_minutes() -> None:
    """One page of at most 1,500 words, and every row that was not run says what it needs."""
    assert len((REPOSITORY / "recipes/RESULTS.md").read_text().split()) <= 1500
    lines = (REPOSITORY / "recipes/pages/not-run.md").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][2:]
    assert len(rows) > 10
    assert [row for row in rows if row[2] == "–"] == []


def test_verdicts_have_their_evidence() -> None:
    """A verdict on what was run has a figure, a link to a test, or a link to a picture."""
    findings = json.loads((REPOSITORY / "recipes/findings.json").read_text())
    claims = [claim for source in findings["sources"] for claim in source["claims"]]
    assert len(claims) > 30
    for claim in claims:
        told = claim.get("here", "") + claim.get("remark", "")
        assert claim["verdict"] == "not run" or re.search(r"\{.+/.+/.+\}|\(../tests/|#pictures|pytest", told), claim


def test_html_in_the_data_is_text(project: Project) -> None:
    """`<script>` in a label, a note or a claim; code stays code."""
    bad = "<script>alert(1)</script> <img src=x onerror=alert(1)> `<s>`"
    rows = [TABLE["rows"][0] | {"label": f"Small {bad}"}, TABLE["rows"][1] | {"label": f"WT {bad}"}]
    project.write_table(TABLE | {"title": bad, "notes": [bad], "rows": rows})
    project.write_findings(claim=bad, remark=bad)
    text = project.write("text.md", "<!-- results:small -->\n<!-- /results -->\n")
    assert project.record("small", "--figure", "test=5")[0] == 0
    assert project.make_pages("--fill", text)[0] == 0
    for path in [text, project.folder / "report.html", *project.folder.glob("*.md"), *project.folder.glob("pages/*")]:
        written = path.read_text()
        assert not re.search(r"<script>alert|<img src=x", written), path
        assert re.search("`<s>`|<code>&lt;s&gt;</code>", written), path


def test_marks_are_filled(project: Project) -> None:
    filled(project)
    text = project.write(
        "text.md",
        "a <!-- results:small/wt/test -->?<!-- /results --> b\n<!-- results:small bleu test -->\n<!-- /results -->\n",
    )
    for _ in range(2):
        assert project.make_pages("--fill", text)[0] == 0
        assert text.read_text() == (
            "a <!-- results:small/wt/test -->112.9<!-- /results --> b\n<!-- results:small bleu test -->\n\n"
            "| row | test, perplexity ↓ | paper | seeds |\n| --- | --- | --- | --- |\n"
            "| Small | 117.0 ± 0.2 | 114.5 | 2 |\n| Small+WT | 112.9 | 112.4 | 1 |\n\n<!-- /results -->\n"
        )


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("smal", "<!-- results:smal -->: needs a table; got smal. Use small."),
        ("small tset", "needs a column of the table small; got tset. Use test, bleu, parameters."),
        ("small/wtt/test", "needs a row of the table small; got wtt. Use small, wt"),
        ("small/wt", "needs TABLE, or TABLE/ROW/COLUMN; got small/wt."),
        ("small/wt/test", "needs a figure that was measured; got none for small/wt/test. Run recipes/x.sh wt."),
    ],
)
def test_refused_marks(mark: str, message: str, project: Project) -> None:
    content = f"<!-- results:{mark} -->\n<!-- /results -->"
    text = project.write("text.md", content)
    status, stderr = project.make_pages("--fill", text)
    assert status == 2
    assert f"--fill {text}: " in stderr
    assert message in stderr
    assert text.read_text() == content
    assert not (project.folder / "RESULTS.md").exists(), "all is made before anything is written"


def test_a_mark_without_an_end(project: Project) -> None:
    text = project.write("text.md", "<!-- results:small --> and no end")
    assert "needs `<!-- /results -->` after each" in project.make_pages("--fill", text)[1]


ROWS = TABLE["rows"]
FIGURES = {"test": {"value": 5, "unit": "perplexity", "paper": 112.4}}
RESULT: dict[str, Any] = {"table": "small", "row": "wt", "seed": 1, "command": "c", "figures": FIGURES}
RESULT |= {"environment": {"date": "2026-11-22", "versions": {"torch": "2"}, "processor": "p"}}


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("results/small/wt-1.json", RESULT | {"row": "wtt"}, "got wtt. Use small, wt"),
        ("results/small/wt-1.json", RESULT | {"seed": 2}, "got a result of small/wt-2."),
        *(
            ("results/small/wt-1.json", {key: RESULT[key] for key in RESULT if key != name}, name)
            for name in ("command", "environment")
        ),
        ("results/small/wt-1.json", RESULT | {"command": None}, "got no command."),
        ("results/small/wt-1.json", RESULT | {"figures": {"tset": {"value": 1}}}, "got figures: needs a column"),
        (
            "results/small/wt-1.json",
            RESULT | {"figures": {"test": FIGURES["test"] | {"paper": 5}}},
            "table ('perplexity', 112.4).",
        ),
        ("results/small/wt-1.json", RESULT | {"extra": 1}, "unexpected keyword argument 'extra'."),
        ("tables/small.json", TABLE | {"order": None, "rows": [{"name": "a"}]}, "argument: 'label'."),
        (
            "tables/small.json",
            TABLE | {"rows": [*ROWS, ROWS[0] | {"name": "a", "paper": {"x": 1}}]},
            "got x. Use test,",
        ),
    ],
)
def test_refused_data(name: str, values: object, message: str, project: Project) -> None:
    (project.results / "small").mkdir()
    project.write("results/small/wt-1.json", json.dumps(RESULT))
    assert project.make_pages()[0] == 0
    assert_refused(project, project.write(name, json.dumps(values)), message)


def assert_refused(project: Project, path: Path, message: str) -> None:
    status, stderr = project.make_pages()
    assert status == 2
    assert f"{path}: needs " in stderr
    assert message in stderr


def test_refused_claims(project: Project) -> None:
    for claim, message in (
        ({"verdict": "hold"}, "with the verdict hold, which is none of holds, does not hold"),
        ({"table": "smal"}, "of the table smal, which is none of small"),
        ({"here": "{small/wt/test}"}, "needs a figure that was measured; got none for small/wt/test."),
        ({"here": "{a/b/x} → {a/b/y}"}, "with {a/b/x} → {a/b/y}, which are not of the same columns"),
        ({"here": "{a/b/x a/c/x} → {a/d/x}"}, "with {a/b/x a/c/x} → {a/d/x}, which are not of the same columns"),
    ):
        assert_refused(project, project.write_findings(**claim), message)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ([7, 9, 11], "12.0 → 9.0 (-3.0 ± 4.5)"),  # both variances 4: sqrt(8 / 3) times 2.776, of 4 degrees of freedom
        ([15, 15], "12.0 → 15.0 (+3.0 ± 5.0)"),  # no variance: sqrt(4 / 3) times 4.303, of the first's 2 degrees alone
        ([9], "12.0 → 9.0"),
    ],
)
def test_a_change_has_its_interval(after: list[float], told: str, project: Project) -> None:
    """Welch's of 95 %, with Student's quantiles from a table, where both rows have several seeds."""
    for row, values in (("small", [10, 12, 14]), ("wt", after)):
        for seed, value in enumerate(values, 1):
            assert project.record(row, "--figure", f"test={value}.0", seed=seed)[0] == 0
    project.write_findings(here="{small/small/test} → {small/wt/test}")
    assert project.make_pages()[0] == 0
    for name in ("FINDINGS.md", "RESULTS.md"):
        text = (project.folder / name).read_text()
        assert f"| {told} |" in text
        assert "In brackets: change ± half its 95 % interval" in text


def test_a_change_of_several_pairs(project: Project) -> None:
    """The means of each row, and the interval of their differences, -3, 3 and 3: 4.303 times sqrt(12 / 3)."""
    project.write_table(TABLE | {"rows": [{"name": name, "label": name} for name in "abcxyz"]})
    for row, value in zip("abcxyz", (10, 20, 40, 7, 23, 43), strict=True):
        for seed, noise in ((1, -1), (2, 1)):
            assert project.record(row, "--figure", f"test={value + noise}.0", seed=seed)[0] == 0
    before, after = (" ".join(f"small/{row}/test" for row in rows) for rows in ("abc", "xyz"))
    project.write_findings(here=f"{{{before}}} → {{{after}}}")
    assert project.make_pages()[0] == 0
    assert "| 23.3 → 24.3 (+1.0 ± 8.6) | 2 |" in (project.folder / "RESULTS.md").read_text()


def test_a_figure_without_variance_has_no_interval(project: Project) -> None:
    for row, count in (("small", 4_652_402), ("wt", 2_652_402)):
        for seed in (1, 2):
            assert project.record(row, "--figure", f"parameters={count}", seed=seed)[0] == 0
    project.write_findings(here="{small/small/parameters} → {small/wt/parameters}")
    assert project.make_pages()[0] == 0
    assert "| 4,652,402 → 2,652,402 |" in (project.folder / "FINDINGS.md").read_text()


def test_refused_folders(project: Project) -> None:
    assert project.make_pages()[0] == 0, "one without results will do"
    (project.results / "other").mkdir()
    assert "--results: needs a folder a table; got other." in project.make_pages()[1]
    assert cli.main(["--tables", str(project.results)], make_pages.create_parser()) == 2
    assert f"needs a folder with tables, NAME.json; got {project.results}" in project.capsys.readouterr().err
