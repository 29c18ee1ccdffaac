"""The page of a report: its HTML, and what it does in Chromium, without which those tests skip."""

import re
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from fairseq_tiedemb.analysis.curves import Series
from fairseq_tiedemb.results.grid import Cell, Grid, Section, number
from fairseq_tiedemb.results.page import chart, inline, page, shortened

BROWSER = shutil.which("chromium") or shutil.which("chromium-headless-shell") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium")

DARK = "--blink-settings=preferredColorScheme=0"

# Presses what a reader presses, and notes what comes of it.
ACTIONS = """
const paper = () => getComputedStyle(document.body).backgroundColor;
const table = document.querySelector("#a table");
const headings = [...table.querySelectorAll("thead th")];
const column = headings.findIndex((heading) => heading.textContent.startsWith("test"));
const values = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent).join("; ");
const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join("; ");
const seeds = headings.findIndex((heading) => heading.textContent === "test");
notes.push(paper());
headings[column].querySelector("button").click();
notes.push(values());
headings[column].querySelector("button").click();
notes.push(values());
headings[seeds].querySelector("button").click();
notes.push(table.tBodies[0].rows[table.tBodies[0].rows.length - 1].cells[seeds].textContent);
notes.push(headings.map((heading) => heading.getAttribute("aria-sort")).filter(Boolean).join());
headings[0].querySelector("button").click();
notes.push(names());
document.getElementById("theme").click();
notes.push(paper());
document.getElementById("theme").click();
notes.push(paper());
notes.push(performance.getEntriesByType("resource").filter((each) => !each.name.startsWith("data:")).length);
notes.push(document.documentElement.scrollWidth <= innerWidth);
// A table whose last column is long, before and after scrolling to its end.
const wide = document.querySelector(".wide");
const row = wide.querySelector("tbody tr");
const [first, second, last] = [row.cells[0], row.cells[1], row.cells[row.cells.length - 1]];
const left = (cell) => Math.round(cell.getBoundingClientRect().left);
notes.push(last.offsetWidth, left(first), left(second));
wide.scrollLeft = wide.scrollWidth;
notes.push(left(first), left(second), getComputedStyle(first).backgroundColor);
"""

# Chooses what a reader chooses, and notes what is left: rows, sections, links, what the page says.
FILTERS = """
const shown = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility()).length;
const pick = (subject, run, text) => {
  [form.elements.subject.value, form.elements.run.value, form.elements.text.value] = [subject, run, text];
  form.dispatchEvent(new Event("input"));
  const rows = shown("table.run tbody tr") + shown("table.missing tbody tr");
  const said = form.querySelector("output").textContent;
  notes.push([rows, shown("main section[data-subject]"), shown("nav li"), said].join());
};
pick("", "", "");
pick("models", "", "");
pick("", "missing", "");
pick("", "run", "UPDATES");
pick("", "", "112.9");
pick("speed", "", "");
"""


def browse(*arguments: str) -> str:
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


def write_page(folder: Path) -> Path:
    """Two sections: one with a wide table, curves and a picture, one with what was not run."""
    tests = (117.1, 112.9, 9.5, None)
    rows = tuple(
        (
            Cell(name),
            Cell("–" if test is None else f"{test} ± 0.1", test),
            *(12 * [Cell("1.25", 1)]),
            Cell(80 * "note "),
        )
        for name, test in zip(("b", "a", "wt,UPDATES=5", "d"), tests, strict=True)
    )
    (folder / "picture.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    grid = Grid(("row", "test", *(12 * ["other"]), "note"), rows)
    curves = {"Curves.": [Series("wt", {1: 2.0}, {1: 3.0})]}
    first = Section("a", "A", ("one",), grid, charts=curves, pictures={"p": folder / "picture.svg"}, subject="models")
    missing = Grid(("not run",), ((Cell("e"),), (Cell("f"),)))
    path = folder / "page.html"
    subjects = {"models": "Models", "speed": "Speed"}
    path.write_text(
        page("Results", [], [first, Section("b", "B", (), None, missing, subject="speed")], subjects=subjects)
    )
    return path


def noted(path: Path, script: str, *arguments: str) -> list[str]:
    """What a script notes that runs at the end of a page."""
    script = f'const notes = []; {script} document.body.innerHTML = "<pre>" + notes.join("\\n") + "</pre>";'
    path.write_text(path.read_text().replace("</body>", f"<script>{script}</script></body>"))
    text = browse("--dump-dom", *arguments, path.as_uri())
    found = re.search(r"<pre>(.*)</pre>", text, re.DOTALL)
    assert found, text
    return unescape(found[1]).split("\n")


@needs_browser
def test_a_reader(tmp_path: Path) -> None:
    """Sorts by a heading, changes the colours, scrolls a wide table; and chooses by subject, by run or not, by text."""
    path = write_page(tmp_path)
    before, up, down, last, state, names, toggled, back, loaded, fits, *looks = noted(
        path, ACTIONS + FILTERS, "--window-size=1150,800", DARK
    )
    assert [before, toggled, back] == ["rgb(21, 24, 29)", "rgb(255, 255, 255)", "rgb(21, 24, 29)"]
    assert up == "9.5 ± 0.1; 112.9 ± 0.1; 117.1 ± 0.1; –"
    assert down == "117.1 ± 0.1; 112.9 ± 0.1; 9.5 ± 0.1; –", "what has no value stands last"
    assert (last, state) == ("–", "ascending"), "one column is marked"
    assert names == "a; b; d; wt,UPDATES=5"
    assert (loaded, fits) == ("0", "true")
    width, first, second, first_then, second_then, colour = looks[:6]
    assert 300 < int(width) < 600, "five lines or so, not one of 3,000 pixels"
    assert first_then == first
    assert int(second_then) < int(second) - 300
    assert colour == back, "nothing shows through"
    # Sections without a row go, and their links.
    assert looks[6:] == ["6,2,2,6 rows", "4,1,1,4 rows", "2,1,1,2 rows", "1,1,1,1 rows", "1,1,1,1 rows", "2,1,1,2 rows"]


@contextmanager
def server() -> Iterator[tuple[str, list[str]]]:
    """An address, and what was asked for there."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}", asked
        listening.shutdown()


@pytest.mark.slow
@needs_browser
def test_nothing_is_fetched_whatever_stands_in_the_page(tmp_path: Path) -> None:
    path = write_page(tmp_path)
    with server() as (address, asked):
        fetching = f'<img src="{address}/image"><script>fetch("{address}/fetch")</script></body>'
        text = path.read_text().replace("</body>", fetching)
        path.write_text(text)
        browse("--dump-dom", path.as_uri())
        assert asked == []
        # Without the page's policy they are: the test can fail.
        path.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text))
        browse("--dump-dom", path.as_uri())
        assert {"/image", "/fetch"} <= set(asked)


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


def test_the_page_has_everything_in_it(tmp_path: Path) -> None:
    text = write_page(tmp_path).read_text()
    tags = Page(text).tags
    loaded = [value for _, attributes in tags for name in ("src", "href") if (value := attributes.get(name))]
    assert all(value.startswith(("data:", "#")) for value in loaded)
    assert not re.search(r"url\((?!#)|@import", text)
    assert "<script>alert" not in text, "a picture is an image, whose scripts do not run"
    assert sum(tag == "svg" and "role" in each for tag, each in tags) == 1, "the learning curves"
    assert sum(tag == "img" for tag, _ in tags) == 1, "the picture"
    assert [attributes["id"] for tag, attributes in tags if tag == "section"] == ["a", "b"]
    assert [attributes["href"] for tag, attributes in tags if tag == "a"] == ["#a", "#b"]
    choices = [attributes["value"] for tag, attributes in tags if tag == "option"]
    assert choices == ["", "models", "speed", "", "run", "missing"]
    alone = Page(page("title", [], [Section("a", "A", (), None)])).tags
    assert not {"a", "option"} & {tag for tag, _ in alone}, "one section needs no list"


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
        (4651600, 0, "4,651,600"),
        (2.5, 0, "3"),
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
    assert Page(text).tags[0][0] == "svg"
    assert "a$b$ &lt;i&gt;" in text, "labels are text"
    assert "currentColor" in text
    assert not re.search("#ffffff|#000000", text)
    assert "date" not in text.partition("<defs")[0]


def test_a_picture_has_the_digits_of_its_size() -> None:
    svg = '<svg width="12.3456">\n  <text x="0.0156" y="1.256e1">3.14159</text></svg>'
    assert shortened(svg) == '<svg width="12.34"><text x="0.0156" y="1.25e1">3.14159</text></svg>'
