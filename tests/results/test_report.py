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
from fairseq_tiedemb.results.chart import Axis, svg
from fairseq_tiedemb.results.grid import Chart, Grid, Section, Series, number
from fairseq_tiedemb.results.page import figure, inline, page
from fairseq_tiedemb.results.tables import read_tables

from .example import EVAL_LM, TABLE, TRAIN, USAGE, Project

REPOSITORY = Path(__file__).resolve().parent.parent.parent
TABLES, RESULTS = REPOSITORY / "recipes/tables", REPOSITORY / "recipes/results"


def report(project: Project, *arguments: object) -> tuple[int, str]:
    return project.run("report", "--output", project.folder, *arguments)


def filled(project: Project) -> str:
    """RESULTS.md of the example with three results: two seeds of one row, and one with a range."""
    for seed, value in ((1, 117.1), (2, 116.84)):
        assert project.record("small", "--figure", f"test={value}", "parameters=4,652,402", seed=seed)[0] == 0
    project.write("run/train.log", TRAIN)
    project.write("run/score-test.log", EVAL_LM.format(112.9))
    assert project.record("wt", "--folder", project.folder / "run")[0] == 0
    assert report(project)[0] == 0
    return (project.folder / "RESULTS.md").read_text()


def test_tables_in_markdown(project: Project) -> None:
    text = filled(project)
    mean, spread = 116.97, statistics.stdev([117.1, 116.84])
    assert text.partition("## A table\n\n")[2].partition("\n\nSource")[0].splitlines() == [
        "| row | test, perplexity ↓ | paper | parameters | seeds |",
        "| --- | --- | --- | --- | --- |",
        f"| Small | {mean:.1f} ± {spread:.1f} | 114.5 | 4,652,402 | 2 |",
        "| Small+WT | 112.9 | 112.4 | 4,652,402 | 1 |",
        "| Small+WT, 5 updates | not run | – | not run | – |",
    ]
    assert "Source: A & B (2016), table 1.\n\nOne `note`.\n" in text
    details = text.partition("<summary>Each run</summary>\n\n")[2].splitlines()
    assert details[2].startswith("| Small | 1 | 117.1 | 4,652,402 | ")
    assert details[3].startswith("| Small | 2 | 116.8 | 4,652,402 | ")


def test_entered_results_say_so(project: Project) -> None:
    assert project.record("small", "--figure", "test=5")[0] == 0
    result = project.result("small-1")
    del result["environment"], result["command"]
    project.write("results/small/small-1.json", str(result | {"entered": "from a book"}).replace("'", '"'))
    assert report(project)[0] == 0
    assert "All results: from a book.\n" in (project.folder / "RESULTS.md").read_text()
    assert project.record("wt", "--figure", "test=5")[0] == 0
    assert report(project)[0] == 0
    assert "\nSmall (seed 1): from a book.\n" in (project.folder / "RESULTS.md").read_text()
    row = "wt,UPDATES=5"
    other = result | {"row": row, "figures": {"bleu": {"value": 1, "unit": "BLEU"}}, "entered": "from a book"}
    project.write(f"results/small/{row}-1.json", json.dumps(other))
    assert report(project)[0] == 0
    text = (project.folder / "RESULTS.md").read_text()
    assert "\nSmall (seed 1); Small+WT, 5 updates (seed 1): from a book.\n" in text, "labels have commas"


def test_rows_of_one_training_say_so(project: Project) -> None:
    project.write("run/train.log", TRAIN)
    project.write("run/usage.jsonl", USAGE)
    for row, seed in (("small", 1), ("wt", 1), ("wt", 2), ("wt,UPDATES=5", 1)):
        if row == "wt,UPDATES=5":  # another training
            project.write("run/train.log", TRAIN.replace("512", "513"))
            project.write("run/usage.jsonl", USAGE.replace("60.5", "61.5"))
        assert project.record(row, "--folder", project.folder / "run", seed=seed)[0] == 0
    assert report(project)[0] == 0
    text = (project.folder / "RESULTS.md").read_text()
    assert "\nRows of one training, which took its CPU minutes and memory once: (Small; Small+WT).\n" in text
    page = (project.folder / "report.html").read_text()
    assert page.count("<path") == 4, "the curves of one training are drawn once"
    legend = page.partition('<ul class="legend">')[2].partition("</ul>")[0]
    assert re.findall("</svg>(.*?)</li>", legend) == ["Small; Small+WT", "Small+WT, 5 updates"]


def test_the_same_data_make_the_same_bytes(project: Project) -> None:
    filled(project)
    first = {name: (project.folder / name).read_bytes() for name in ("RESULTS.md", "report.html")}
    assert report(project)[0] == 0
    assert {name: (project.folder / name).read_bytes() for name in first} == first


def test_the_committed_reports_are_those_of_the_data(tmp_path: Path) -> None:
    """`make report` rebuilds RESULTS.md, report.html and what the texts quote, byte for byte."""
    (command,) = re.findall(r"fairseq-tiedemb (report --fill .*)", (REPOSITORY / "Makefile").read_text())
    _, fill, *quoting = command.split()
    for name in quoting:
        assert "<!-- results:" in (REPOSITORY / name).read_text()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    flags = ["--tables", str(TABLES), "--results", str(RESULTS), "--output", str(tmp_path / "recipes")]
    assert cli.main(["report", *flags, fill, *(str(tmp_path / name) for name in quoting)]) == 0
    for name in ("recipes/RESULTS.md", "recipes/report.html", *quoting):
        made = (tmp_path / name).read_bytes()
        assert made == (REPOSITORY / name).read_bytes(), f"{name} is not of the data. Use make report."


def test_commands_of_the_tables_are_there() -> None:
    for table in read_tables(TABLES, flag="--tables"):
        for row in table.rows:
            for script in re.findall(r"recipes/\S+", row.command or ""):
                assert (REPOSITORY / script).exists(), f"{table.name}, {row.name}"


class Page(HTMLParser):
    """The tags of a page with their attributes, and a check that they are closed in order."""

    VOID = {"meta", "link", "img", "br"}

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
    assert not re.search(r"url\(|@import", text)
    assert "<script>alert" not in text, "a picture is an image, whose scripts do not run"
    assert sum(tag == "svg" and "role" in each for tag, each in found.tags) == 1, "the learning curves"
    assert sum(tag == "img" for tag, _ in found.tags) == 1, "the picture"
    assert [attributes["id"] for tag, attributes in found.tags if tag == "section"] == ["small"]


@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_a_page_of_several_sections_lists_them(names: tuple[str, ...]) -> None:
    found = Page(page("title", "", [Section(name, name.upper(), (), Grid(("row",), ())) for name in names]))
    anchors = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    links = [attributes["href"] for tag, attributes in found.tags if tag == "a"]
    assert anchors == list(names)
    assert links == ([f"#{anchor}" for anchor in anchors] if len(names) > 1 else [])


def test_markup_is_text() -> None:
    assert inline("<b> & `a<b **c**` **d** *e* 2 * 3") == (
        "&lt;b&gt; &amp; <code>a&lt;b **c**</code> <strong>d</strong> <em>e</em> 2 * 3"
    )
    assert inline("[x](https://example.org) [y](javascript:z)") == (
        '<a href="https://example.org">x</a> [y](javascript:z)'
    )
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


def test_a_chart_puts_points_where_they_belong() -> None:
    chart = Chart("c", "epoch", "y", (Series("a", {1: 10.0, 2: 20.0, 3: 30.0}), Series("<b>", {2: 20.0}, dashed=True)))
    text = svg(chart)
    first, second = re.findall(r'<path[^>]* style="stroke:var\(--line-(\d)\)[^"]*" d="M([^"]+)"', text)
    assert (first[0], second[0]) == ("0", "1")
    points = [tuple(map(float, point.split())) for point in first[1].split("L")]
    assert points[0][0] < points[1][0] < points[2][0]
    assert points[0][1] > points[1][1] > points[2][1], "upwards"
    assert points[1] == pytest.approx([(points[0][axis] + points[2][axis]) / 2 for axis in (0, 1)], abs=0.1)
    # A single value, whose line would be dashed, is a ring around it.
    assert second[1].startswith("{:g} {:g}m-4 0a4 4".format(*points[1]))
    (dot,) = re.findall(r'd="M([^"]+)"', svg(Chart("c", "x", "y", (Series("a", {1: 1.0}),))))
    assert dot.endswith("h0")
    assert "&lt;b&gt;" in text
    # Ratios beyond five have a logarithmic axis: equal ratios, equal distances.
    (wide,) = re.findall(r'd="M([^"]+)"', svg(Chart("c", "x", "y", (Series("a", {1: 1.0, 2: 10.0, 3: 100.0}),))))
    heights = [float(point.split()[1]) for point in wide.split("L")]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.1)


def test_every_line_of_a_chart_has_a_look_of_its_own() -> None:
    points = {1: 1.0, 2: 2.0}
    series = [Series(f"run {number}", points, dashed=dashed) for number in range(20) for dashed in (False, True)]
    shown = figure(Chart("c", "epoch", "y", tuple(series)))
    looks = re.findall(r'<path( class="dashed")? style="([^"]*)"', shown)
    assert len(set(looks)) == len(looks) == 40
    legend = re.findall(r'<line[^>]* style="([^"]*)"/></svg>(.*?)</li>', shown)
    assert legend == [(looks[2 * number][1], f"run {number}") for number in range(20)], "that of the solid lines"
    assert "Where a colour comes again" in shown
    assert "Where a colour comes again" not in figure(Chart("c", "epoch", "y", tuple(series[:16])))


@pytest.mark.parametrize(
    ("low", "high", "values"),
    [
        (1.5, 30, [2, 5, 10, 20]),
        (1, 1e4, [1, 10, 100, 1000, 1e4]),
        (1, 1e38, [1, 1e4, 1e8, 1e12, 1e16, 1e20, 1e24, 1e28, 1e32, 1e36]),
        (5e-324, 1.7e308, None),
    ],
)
def test_ticks_of_many_decades(low: float, high: float, values: list[float] | None) -> None:
    ticks = Axis(low, high, 0, 1, logarithmic=True).ticks()
    assert 4 <= len(ticks) <= 10
    assert values is None or ticks == pytest.approx(values)


def test_a_chart_of_one_large_value_has_an_axis() -> None:
    assert "1.26765e+30" in svg(Chart("c", "epoch", "y", (Series("a", {1: 1.26765e30}),)))


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
            "| row | test, BLEU ↑ | test, perplexity ↓ | paper | seeds |\n| --- | --- | --- | --- | --- |\n"
            "| Small | – | 117.0 ± 0.2 | 114.5 | 2 |\n| Small+WT | – | 112.9 | 112.4 | 1 |\n"
            "| Small+WT, 5 updates | not run | not run | – | – |\n\n<!-- /results -->\n"
        )


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("smal", "<!-- results:smal -->: needs a table; got smal. Use small."),
        ("small tset", "needs a column of the table small; got tset. Use test, bleu, parameters."),
        ("small/wtt/test", "needs a row of the table small; got wtt. Use small, wt"),
        ("small/wt", "needs TABLE, or TABLE/ROW/COLUMN; got small/wt."),
        ("small/wt/test", "needs a figure that was measured; got none. Run recipes/x.sh wt."),
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
        ("command", None, "command: needs text; got none"),
        ("command", "", "command: needs text; got ''"),
        ("figures", {}, "figures: needs one or more of test, bleu, parameters; got {}"),
        ("figures.tset", {}, "figures: needs a column of the table small; got tset"),
        ("figures.test.value", "5", "figures.test.value: needs a finite number; got '5'"),
        ("figures.test.value", float("inf"), "figures.test.value: needs a finite number; got inf"),
        pytest.param(
            "figures.test.value", 10**400, "figures.test.value: needs a finite number; got 1", id="400 digits"
        ),
        pytest.param("seed", 10**400, "seed: needs a whole number, 0 or more; got 1", id="seed of 400 digits"),
        ("figures.test.unit", "BLEU", "figures.test.unit: needs one of perplexity; got 'BLEU'"),
        ("figures.test.paper", 112, "figures.test.paper: needs the paper's figure of the table, 112.4; got 112."),
        ("figures.test.kind", 1, "figures.test.kind: needs a field that is known; got this"),
        ("environment", None, "environment: needs an object, {...}; got none"),
        ("environment.dirty", "no", "environment.dirty: needs true or false; got 'no'"),
        ("environment.versions.torch", 2, "environment.versions.torch: needs text; got 2"),
        ("environment.accelerators", [1], "environment.accelerators: needs a list of texts; got [1]"),
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
        ({"rows": []}, "rows: needs a list of objects; got []"),
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
