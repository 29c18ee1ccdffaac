"""`fairseq-tiedemb report`: what it makes of the data, byte for byte, and what data it refuses."""

import json
import re
import shutil
import statistics
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.analysis.curves import Series
from fairseq_tiedemb.results.grid import Grid, Section, number
from fairseq_tiedemb.results.page import chart, inline, page, shortened
from fairseq_tiedemb.results.tables import read_tables

from .example import EVAL_LM, TABLE, TRAIN, USAGE, Project

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TABLES, RESULTS = REPOSITORY / "recipes/tables", REPOSITORY / "recipes/results"


def report(project: Project, *arguments: object) -> tuple[int, str]:
    return project.run("report", "--output", project.folder, *arguments)


def page_of_table(project: Project) -> str:
    """The page of the example's subject."""
    return (project.folder / "pages/language-models.md").read_text()


def filled(project: Project) -> str:
    """The page of the subject of the example with three results: two seeds of one row, and one with a range."""
    for seed, value in ((1, 117.1), (2, 116.84)):
        assert project.record("small", "--figure", f"test={value}", "parameters=4,652,402", seed=seed)[0] == 0
    project.write("run/train.log", TRAIN)
    project.write("run/score-test.log", EVAL_LM.format(112.9))
    assert project.record("wt", "--folder", project.folder / "run")[0] == 0
    assert report(project)[0] == 0
    return page_of_table(project)


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
    assert "Not run: [1 rows](not-run.md#small)." in text
    assert "Each run" not in text, "dates, commits and commands are on the page"
    (versions,) = re.findall(r"Measured on .*", text)
    page = (project.folder / "report.html").read_text()
    assert versions.count("torch") == 1
    assert page.count("torch") == 1
    details = re.findall(r"<tr>.*?</tr>", page.partition("<summary>Each run</summary>")[2])[1:]
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)[:4] for row in details]
    assert cells[:2] == [["Small", "1", "117.1", "4,652,402"], ["Small", "2", "116.8", "4,652,402"]]


def test_what_was_not_run_is_one_list(project: Project) -> None:
    """With hardware and time, the row's own or the table's; and links of a version ago lead to a link to it."""
    rows = [*TABLE["rows"], {"name": "large", "label": "Large", "command": "recipes/y.sh large", "needs": "one GPU"}]
    project.write_table(TABLE | {"rows": rows, "needs": "one core, an hour"})
    assert project.record("small", "--figure", "test=5")[0] == 0
    assert report(project)[0] == 0
    listed = (project.folder / "pages/not-run.md").read_text().splitlines()
    assert [line for line in listed if line.startswith("|")][2:] == [
        '| <a name="small"></a>A table | Small+WT | one core, an hour | [x.sh](../x.sh) |',
        "| A table | Small+WT, 5 updates | one core, an hour | – |",
        "| A table | Large | one GPU | [y.sh](../y.sh) |",
    ]
    assert (
        '<a name="small"></a>[Language models](pages/language-models.md)' in (project.folder / "RESULTS.md").read_text()
    )


def test_entered_results_carry_a_dagger_wherever_they_are_quoted(project: Project) -> None:
    assert project.record("small", "--figure", "test=5")[0] == 0
    assert project.record("wt", "--figure", "test=6.5", seed=2)[0] == 0
    result = project.result("small-1")
    del result["environment"], result["command"]
    for row in ("small", "wt"):
        entered = result | {"row": row, "figures": {"bleu": {"value": 1.25, "unit": "BLEU"}}, "entered": "from a book"}
        project.write(f"results/small/{row}-1.json", json.dumps(entered))
    text = project.write("text/text.md", "<!-- results:small/small/bleu --><!-- /results -->\n<!-- results:small -->")
    text.write_text(text.read_text() + "<!-- /results -->")
    project.write_findings(claim="c", here="{small/small/bleu}, {small/wt/test}")
    assert report(project, "--fill", text)[0] == 0
    assert "| Small | – | 114.5 | 1.25† |" in page_of_table(project)
    assert "\n† from a book.\n" in page_of_table(project)
    assert "| Small+WT | 6.5 | 112.4 | 1.25† | 2 |" in page_of_table(project), "of the figure, and not of the row"
    assert "1.25[†](../RESULTS.md#entered)<!--" in text.read_text()
    assert " 1.25† |" in text.read_text()
    for name in ("RESULTS.md", "FINDINGS.md", "report.html"):
        written = (project.folder / name).read_text()
        assert "1.25†, 6.5" in written
        assert "2 of them † from a book." in written
    assert '<a name="entered"></a>' in (project.folder / "RESULTS.md").read_text()


def test_rows_of_one_training_say_so(project: Project) -> None:
    project.write("run/train.log", TRAIN)
    project.write("run/usage.jsonl", USAGE)
    for row, seed in (("small", 1), ("wt", 1), ("wt", 2), ("wt,UPDATES=5", 1)):
        if row == "wt,UPDATES=5":  # another training
            project.write("run/train.log", TRAIN.replace("512", "513"))
            project.write("run/usage.jsonl", USAGE.replace("60.5", "61.5"))
        assert project.record(row, "--folder", project.folder / "run", seed=seed)[0] == 0
    assert report(project)[0] == 0
    text = page_of_table(project)
    assert "\nRows of one training, which took its CPU minutes and memory once: (Small; Small+WT).\n" in text
    page = (project.folder / "report.html").read_text()
    legend = re.findall(r"<text[^>]*>(Small[^<]*)</text>", page)
    assert legend == ["Small; Small+WT", "Small+WT, 5 updates"], "the curves of one training are drawn once"


def test_the_same_data_make_the_same_bytes(project: Project) -> None:
    filled(project)
    first = {name: (project.folder / name).read_bytes() for name in ("RESULTS.md", "pages/not-run.md", "report.html")}
    assert report(project)[0] == 0
    assert {name: (project.folder / name).read_bytes() for name in first} == first


def test_the_committed_reports_are_those_of_the_data(tmp_path: Path) -> None:
    """`make report` rebuilds the texts on results and what other texts quote, byte for byte."""
    (command,) = re.findall(r"fairseq-tiedemb report --html build --fill (.*)", (REPOSITORY / "Makefile").read_text())
    quoting = command.split()
    (tmp_path / "recipes").mkdir()
    for name in quoting:
        assert "<!-- results:" in (REPOSITORY / name).read_text()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    flags = ["--tables", str(TABLES), "--results", str(RESULTS), "--output", str(tmp_path / "recipes")]
    assert cli.main(["report", *flags, "--fill", *(str(tmp_path / name) for name in quoting)]) == 0
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
    assert len(rows) > 20
    assert [row for row in rows if row[2] == "–"] == []


def test_verdicts_have_their_evidence() -> None:
    """A verdict on what was run has a figure, a link to a test, or a link to a picture."""
    findings = json.loads((REPOSITORY / "recipes/findings.json").read_text())
    claims = [claim for source in findings["sources"] for claim in source["claims"]]
    assert len(claims) > 30
    for claim in claims:
        told = claim.get("here", "") + claim.get("remark", "")
        assert claim["verdict"] == "unrun" or re.search(r"\{.+/.+/.+\}|\(../tests/|#pictures|pytest", told), claim


def test_commands_of_the_tables_are_there() -> None:
    for table in read_tables(TABLES, flag="--tables"):
        for row in table.rows:
            for script in re.findall(r"recipes/\S+", row.command or ""):
                assert (REPOSITORY / script).exists(), f"{table.name}, {row.name}"


class Page(HTMLParser):
    """The tags of a page with their attributes, and a check that they are closed in order."""

    VOID = {"meta", "link", "img", "br", "input"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_has_everything_in_it(project: Project) -> None:
    filled(project)
    project.write("run/norms.svg", '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    assert project.record("wt", "--folder", project.folder / "run")[0] == 0
    assert report(project)[0] == 0
    text = (project.folder / "report.html").read_text()
    found = Page(text)
    loaded = [value for _, attributes in found.tags for name in ("src", "href") if (value := attributes.get(name))]
    assert all(value.startswith(("data:", "#")) for value in loaded)
    assert not re.search(r"url\((?!#)|@import", text)
    assert "<script>alert" not in text, "a picture is an image, whose scripts do not run"
    assert sum(tag == "svg" and "role" in each for tag, each in found.tags) == 1, "the learning curves"
    assert sum(tag == "img" for tag, _ in found.tags) == 1, "the picture"
    assert [attributes["id"] for tag, attributes in found.tags if tag == "section"] == ["claims", "small"]


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_a_page_of_several_sections_lists_them(names: tuple[str, ...]) -> None:
    sections = [Section(name, name.upper(), (), Grid(("row",), ()), subject=f"of {name}") for name in names]
    found = Page(page("title", [], sections, subjects={f"of {name}": name for name in names}))
    anchors = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    links = [attributes["href"] for tag, attributes in found.tags if tag == "a"]
    assert anchors == list(names)
    assert links == ([f"#{anchor}" for anchor in anchors] if len(names) > 1 else [])
    choices = [attributes["value"] for tag, attributes in found.tags if tag == "option"]
    assert choices == (["", *(f"of {name}" for name in names), "", "run", "missing"] if len(names) > 1 else [])


def test_markup_is_text() -> None:
    assert inline("<b> & `a<b **c**` **d** *e* 2 * 3") == (
        "&lt;b&gt; &amp; <code>a&lt;b **c**</code> <strong>d</strong> <em>e</em> 2 * 3"
    )
    assert inline("[x](https://example.org) [y](javascript:z)") == ('<a href="https://example.org">x</a> y')
    assert inline("[x](#speed-export), `[y](#z)`") == '<a href="#speed-export">x</a>, <code>[y](#z)</code>'


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (41.65, 1, "41.7"),
        (41.75, 1, "41.8"),
        (117, 1, "117"),
        (4651600, 0, "4,651,600"),
        (2.5, 0, "3"),
        (0.5, 2, "0.50"),
        (0.5, 30, f"0.5{29 * '0'}"),
        (999_999_999_999_999, 0, "999,999,999,999,999"),
        (999_999_999_999_999.5, 2, "999,999,999,999,999.50"),
        (10**15, 0, "1e+15"),
        (-1.26765e30, 2, "-1.268e+30"),
    ],
)
def test_numbers_are_rounded_as_on_paper(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


def test_a_chart_has_the_colours_of_the_page() -> None:
    series = [Series("a$b$ <i>", {1: 30.0, 2: 20.0}, {1: 10.0, 2: float("inf")}), Series("b", {}, {1: 1.0})]
    text = chart(series, "name")
    assert chart(series, "name") == text
    found = Page(text)
    assert found.tags[0][0] == "svg"
    assert "a$b$ &lt;i&gt;" in text, "labels are text"
    assert "currentColor" in text
    assert not re.search("#ffffff|#000000", text)
    assert "date" not in text.partition("<defs")[0]


def test_a_picture_has_the_digits_of_its_size() -> None:
    svg = '<svg width="12.3456">\n  <text x="0.0156" y="1.25e1">3.14159</text></svg>'
    assert shortened(svg) == '<svg width="12.3"><text x="0.0156" y="1.2e1">3.14159</text></svg>'


def test_html_in_the_data_is_text(project: Project) -> None:
    """`<script>` in a label, a note or a claim; code stays code."""
    bad = "<script>alert(1)</script> <img src=x onerror=alert(1)> `<s>`"
    rows = [TABLE["rows"][0] | {"label": f"Small {bad}"}, TABLE["rows"][1] | {"label": f"WT {bad}"}]
    project.write_table(TABLE | {"title": bad, "notes": [bad], "rows": rows})
    project.write_findings(claim=bad, remark=bad)
    text = project.write("text.md", "<!-- results:small -->\n<!-- /results -->\n")
    assert project.record("small", "--figure", "test=5")[0] == 0
    assert report(project, "--fill", text)[0] == 0
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
        assert report(project, "--fill", text)[0] == 0
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
    status, stderr = report(project, "--fill", text)
    assert status == 2
    assert f"--fill {text}: " in stderr
    assert message in stderr
    assert text.read_text() == content
    assert not (project.folder / "RESULTS.md").exists(), "all is made before anything is written"


def test_refused_texts(project: Project) -> None:
    text = project.write("text.md", "<!-- results:small --> and no end")
    assert "needs `<!-- /results -->` after each" in report(project, "--fill", text)[1]
    assert "--fill: needs a text; got none.md (No such file" in report(project, "--fill", "none.md")[1]
    text.write_bytes(b"\xff")
    assert f"--fill: needs a text in UTF-8; got {text} (" in report(project, "--fill", text)[1]


def changed(path: str, value: object) -> dict[str, Any]:
    """A result of the example with a field, as `figures.test.value`, replaced, or removed if it is None."""
    environment = {"date": "2026-11-22", "versions": {"torch": "2"}, "processor": "p"}
    figures = {"test": {"value": 5, "unit": "perplexity", "paper": 112.4}}
    result: dict[str, Any] = {"table": "small", "row": "wt", "seed": 1, "command": "c"}
    result |= {"figures": figures, "environment": environment}
    *parents, last = path.split(".")
    inner = result
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner[last] = value
    if value is None:
        del inner[last]
    return result


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("table", "large", "table: needs small, the name of its folder; got 'large'"),
        ("row", "wtt", "row: needs a row of the table small; got wtt"),
        ("seed", -1, "seed: needs a whole number, 0 or more; got -1"),
        ("seed", 2, "row, seed: needs a file wt-2.json; got wt-1.json. Rename it."),
        ("seed", True, "seed: needs a whole number, 0 or more; got True"),
        ("command", None, "command: needs a value, or `entered` with the reason; got none"),
        ("command", "", "command: needs text; got ''"),
        ("figures", {}, "figures: needs one or more of test, bleu, parameters; got {}"),
        ("figures.tset", {"value": 1}, "figures: needs a column of the table small; got tset"),
        ("figures.test.value", "5", "figures.test.value: needs a finite number; got '5'"),
        ("figures.test.value", float("inf"), "figures.test.value: needs a finite number; got inf"),
        pytest.param(
            "figures.test.value", 10**400, "figures.test.value: needs a finite number; got 1", id="400 digits"
        ),
        pytest.param("seed", 10**400, "seed: needs a whole number, 0 or more; got 1", id="seed of 400 digits"),
        ("figures.test.unit", "BLEU", "figures.test.unit: needs perplexity, the column's; got 'BLEU'"),
        ("figures.test.paper", 112, "figures.test.paper: needs the paper's figure of the table, 112.4; got 112."),
        ("figures.test.kind", 1, "figures.test.kind: needs a field that is known; got this"),
        ("environment", None, "environment: needs a value, or `entered` with the reason; got none"),
        ("environment.dirty", "no", "environment.dirty: needs true or false; got 'no'"),
        ("environment.versions.torch", 2, "environment.versions.torch: needs text; got 2"),
        ("environment.accelerators", [1], "environment.accelerators[0]: needs text; got 1"),
        ("usage.cpu_seconds", None, "usage.cpu_seconds: needs a finite number; got none"),
        ("curve.valid", {"one": 5}, "curve.valid.one: needs the number of an epoch; got 'one'"),
        ("curve.valid", {"1": None}, "curve.valid.1: needs a finite number; got none"),
        ("extra", 1, "extra: needs a field that is known; got this. Remove it."),
    ],
)
def test_refused_results(field: str, value: object, message: str, project: Project) -> None:
    path = project.results / "small/wt-1.json"
    path.parent.mkdir()
    path.write_text(json.dumps(changed("seed", 1)))
    assert report(project)[0] == 0
    path.write_text(json.dumps(changed(field, value)))
    status, stderr = report(project)
    assert status == 2
    assert f"{path}: {message}" in stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "needs JSON; got a file that is none (Expecting"),
        ("[]", "it: needs an object, {...}; got []"),
        pytest.param("9" * 5000, "needs JSON; got a file that is none (Exceeds the limit", id="5000 digits"),
    ],
)
def test_refused_json(text: str, message: str, project: Project) -> None:
    path = project.results / "small/wt-1.json"
    path.parent.mkdir()
    path.write_text(text)
    status, stderr = report(project)
    assert status == 2
    assert f"{path}: {message}" in stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"title": 1}, "title: needs text; got 1"),
        ({"order": None}, "order: needs a finite number; got none"),
        ({"rows": []}, "rows: needs one or more; got []"),
        ({"rows": [{"name": "a b", "label": "x"}]}, "rows[0].name: needs letters, digits and any of _.,=+-; got 'a b'"),
        ({"rows": 2 * [TABLE["rows"][0]]}, "rows: needs names that are there once; got 'small'"),
        (
            {"rows": [{"name": "a", "label": "a", "paper": {"x": 1}}]},
            "rows[0].paper.x: needs one of the columns test, ",
        ),
        (
            {"columns": [TABLE["columns"][0] | {"better": "up"}]},
            "columns[0].better: needs one of lower, higher; got 'up'",
        ),
        ({"footnotes": []}, "footnotes: needs a field that is known"),
    ],
)
def test_refused_tables(changes: dict[str, Any], message: str, project: Project) -> None:
    path = project.write_table(TABLE | changes)
    status, stderr = report(project)
    assert status == 2
    assert f"{path}: {message}" in stderr


@pytest.mark.parametrize("name", ["pages", "pages/not-run.md", "report.html"])
def test_places_that_are_taken(name: str, project: Project) -> None:
    """By a file in the place of a folder, or the other way round: nothing is written."""
    path = project.folder / name
    if name == "pages":
        path.write_text("")
    else:
        path.mkdir(parents=True)
    status, stderr = report(project)
    assert status == 2
    assert f"--output: needs the name of a file; got {path}, which is none." in stderr or (
        f"--output: needs a folder that exists; got {path}" in stderr
    )
    assert not (project.folder / "RESULTS.md").exists()


def test_refused_folders(project: Project) -> None:
    for results in (project.folder / "none", project.write("file", "")):
        flags = ["--tables", project.tables, "--results", results, "--output", project.folder]
        assert cli.main(["report", *map(str, flags)]) == 2
        assert f"--results: needs the folder of the results; got {results}," in project.capsys.readouterr().err
    assert not (project.folder / "RESULTS.md").exists()
    assert report(project)[0] == 0, "one without results will do"
    (project.results / "other").mkdir()
    assert f"{project.results}/other: needs the name of a table; got other. Use small." in report(project)[1]
    assert cli.main(["report", "--tables", str(project.results)]) == 2
    assert f"needs a folder with tables, NAME.json; got {project.results}" in project.capsys.readouterr().err
    status, stderr = project.run("report", "--output", project.folder / "none")
    assert status == 2
    assert "--output: needs a folder that exists" in stderr or "needs the name of a table" in stderr
