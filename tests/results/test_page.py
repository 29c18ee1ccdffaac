"""The page of results in a real browser, Chromium from the system's packages; without one, these tests skip."""

import re
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from fairseq_tiedemb import cli
from fairseq_tiedemb.results.grid import Cell, Grid, Section
from fairseq_tiedemb.results.page import page

from .example import TABLE, Project
from .test_report import RESULTS, TABLES

BROWSER = shutil.which("chromium") or shutil.which("chromium-headless-shell") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs a browser: apt-get install chromium")

DARK = "--blink-settings=preferredColorScheme=0"

# Presses what a reader presses, and writes down what comes of it.
ACTIONS = """
const notes = [];
const paper = () => getComputedStyle(document.body).backgroundColor;
const table = document.querySelector("#table6 table");
const headings = [...table.querySelectorAll("thead th")];
const column = headings.findIndex((heading) => heading.textContent.startsWith("test"));
const values = () => [...table.tBodies[0].rows].map((row) => row.cells[column].textContent).join("; ");
const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join("; ");
const seeds = headings.findIndex((heading) => heading.textContent === "seeds");
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
document.body.innerHTML = "<pre>" + notes.join("\\n") + "</pre>";
"""

# Looks at a table whose last column is long, before and after scrolling to its end.
LOOKS = """
const wide = document.querySelector(".wide");
const row = wide.querySelector("tbody tr");
const [first, second, last] = [row.cells[0], row.cells[1], row.cells[row.cells.length - 1]];
const left = (cell) => Math.round(cell.getBoundingClientRect().left);
const notes = [last.offsetWidth, left(first), left(second)];
wide.scrollLeft = wide.scrollWidth;
notes.push(left(first), left(second), getComputedStyle(first).backgroundColor);
document.body.innerHTML = "<pre>" + notes.join("\\n") + "</pre>";
"""


# Chooses what a reader chooses, and notes what is left: rows, sections, links, what the page says.
FILTERS = """
const notes = [];
const left = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility()).length;
const pick = (subject, run, text) => {
  [form.elements.subject.value, form.elements.run.value, form.elements.text.value] = [subject, run, text];
  form.dispatchEvent(new Event("input"));
  const rows = left("table.run tbody tr") + left("table.missing tbody tr");
  const said = form.querySelector("output").textContent;
  notes.push([rows, left("main section[data-subject]"), left("nav li"), said].join());
};
pick("", "", "");
pick("language-models", "", "");
pick("", "missing", "");
pick("", "run", "UPDATES");
pick("", "", "112.9");
pick("speed", "", "");
document.body.innerHTML = "<pre>" + notes.join("\\n") + "</pre>";
"""


def browse(*arguments: str) -> str:
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as `make report` builds it."""
    folder = tmp_path_factory.mktemp("report")
    assert cli.main(["report", f"--tables={TABLES}", f"--results={RESULTS}", f"--output={folder}"]) == 0
    return folder / "report.html"


def noted(path: Path, script: str, *arguments: str) -> list[str]:
    """What a script notes that runs at the end of a page."""
    path.write_text(path.read_text().replace("</body>", f"<script>{script}</script></body>"))
    text = browse("--dump-dom", *arguments, path.as_uri())
    found = re.search(r"<pre>(.*)</pre>", text, re.DOTALL)
    assert found, text
    return unescape(found[1]).split("\n")


def numbers(line: str) -> list[float]:
    """The means of a column, as they stand."""
    return [float(cell.split()[0].strip("†")) for cell in line.split("; ") if cell != "–"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_sorting_and_colours(dark: bool, built: Path, tmp_path: Path) -> None:
    path = shutil.copy(built, tmp_path / "page.html")
    notes = noted(path, ACTIONS, *([DARK] if dark else []))
    before, up, down, last, state, names, toggled, back, loaded, fits = notes
    colours = ["rgb(21, 24, 29)", "rgb(255, 255, 255)"]
    assert [before, toggled, back] == (colours if dark else colours[::-1]) + [before]
    assert numbers(up) == sorted(numbers(up))
    assert len(numbers(up)) == 7
    assert numbers(down) == numbers(up)[::-1]
    assert last == "–", "what has no value stands last"
    assert state == "ascending", "one column is marked"
    assert names.split("; ") == sorted(names.split("; "))
    assert (loaded, fits) == ("0", "true")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_wide_table_breaks_its_notes_and_keeps_its_first_column(dark: bool, tmp_path: Path) -> None:
    figures = tuple(Cell(f"{number}.25 ± 0.01", number) for number in range(12))
    grid = Grid(("row", *len(figures) * ["test"], "note"), ((Cell("a row"), *figures, Cell(80 * "note ")),))
    path = tmp_path / "page.html"
    path.write_text(page("Results", [], [Section("a", "A", (), grid)]))
    notes = noted(path, LOOKS, "--window-size=1150,800", *([DARK] if dark else []))
    width, first, second, first_then, second_then, colour = notes
    assert 300 < int(width) < 600, "five lines or so, not one of 3,000 pixels"
    assert first_then == first
    assert int(second_then) < int(second) - 300
    assert colour == ("rgb(21, 24, 29)" if dark else "rgb(255, 255, 255)"), "nothing shows through"


def test_rows_are_chosen(project: Project) -> None:
    """By subject, by run or not, by text; sections without a row go, and their links."""
    other = {"order": 2, "subject": "speed", "title": "Other", "needs": "a GPU"}
    project.write_table(TABLE | other, "other")
    for row, value in (("small", 117.1), ("wt", 112.9)):
        assert project.record(row, "--figure", f"test={value}")[0] == 0
    project.write_findings()
    assert project.run("report", "--output", project.folder)[0] == 0
    assert noted(project.folder / "report.html", FILTERS) == [
        "6,2,2,6 rows",
        "3,1,1,3 rows",
        "4,2,2,4 rows",
        "0,0,0,0 rows",
        "1,1,1,1 rows",
        "3,1,1,3 rows",
    ]


def test_screenshots(built: Path, tmp_path: Path) -> None:
    from matplotlib.image import imread

    corners = []
    for name, options in (("light", []), ("dark", [DARK])):
        picture = tmp_path / f"{name}.png"
        browse(f"--screenshot={picture}", "--window-size=1150,1600", *options, built.as_uri())
        pixels = imread(picture)
        assert pixels.shape[:2] == (1600, 1150)
        assert pixels.std() > 0.05, "there is something on it"
        corners.append(pixels[0, 0, :3].mean())
    assert corners[0] == 1
    assert corners[1] < 0.15


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


def test_nothing_is_fetched_whatever_stands_in_the_page(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with server() as (address, asked):
        fetching = f'<img src="{address}/image"><script>fetch("{address}/fetch")</script></body>'
        text = built.read_text().replace("</body>", fetching)
        path.write_text(text)
        browse("--dump-dom", path.as_uri())
        assert asked == []
        # Without the page's policy they are: the test can fail.
        path.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text))
        browse("--dump-dom", path.as_uri())
        assert {"/image", "/fetch"} <= set(asked)
