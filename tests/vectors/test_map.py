"""Maps: principal components against their laws, labels, pictures, and what is refused."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fairseq_tiedemb.vectors.map import _label, draw, neighbour_embedding, principal_components

from ..conftest import Cli
from .common import command, random_table, write_text


def test_principal_components() -> None:
    rows = np.random.default_rng(1).standard_normal((40, 5)) * [1, 5, 2, 3, 0.1]
    places, kept = principal_components(rows)
    values = np.sort(np.linalg.eigvalsh(np.cov(rows.T)))[::-1]
    assert places.var(0, ddof=1) == pytest.approx(values[:2], rel=1e-9)
    assert kept == pytest.approx(values[:2].sum() / values.sum(), rel=1e-9)
    assert (places[np.abs(places).argmax(0), [0, 1]] > 0).all()
    assert places.mean(0) == pytest.approx([0, 0], abs=1e-12)
    assert places[:, 0] @ places[:, 1] == pytest.approx(0, abs=1e-9)
    assert principal_components(-rows)[0] == pytest.approx(places, abs=1e-9)  # the sign is settled


def test_rows_that_do_not_spread() -> None:
    places, kept = principal_components(np.ones((4, 3)))
    assert (places == 0).all()
    assert kept == 1.0
    assert principal_components(np.arange(4.0)[:, None])[0][:, 1].tolist() == [0] * 4


def test_neighbours_stay_together() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(1)
    groups = np.repeat(np.eye(3, 10), 15, axis=0) + 0.05 * rng.standard_normal((45, 10))
    places = neighbour_embedding(groups.astype(np.float32))
    assert np.array_equal(places, neighbour_embedding(groups.astype(np.float32)))
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (apart.argmin(1) // 15 == np.arange(45) // 15).all()


def test_labels_do_not_cover_each_other(tmp_path: Path) -> None:
    words = ["first", "second", "third", "$a$", "fifth", "sixth"]
    places = np.array([[0.0, 0.0]] * 6)
    assert draw([("one place", words, places)], tmp_path / "x.png", picture_format="png", true_distances=False) == [4]
    places = np.random.default_rng(1).standard_normal((6, 2))
    two = [("far", words, places), ("$", words, 2 * places)]
    assert draw(two, tmp_path / "x.svg", picture_format="svg", true_distances=False) == [6, 6]


def test_a_label_covers_no_point_where_it_can_stand_elsewhere() -> None:
    for places, side in (([(0, 0)], "left"), ([(0, 0), (0.05, 0.05)], "right")):
        figure = Figure(figsize=(4, 4))
        axes, canvas = figure.add_subplot(xlim=(-1, 1), ylim=(-1, 1)), FigureCanvasAgg(figure)
        canvas.draw()
        assert _label(axes, ["first", "second"][: len(places)], np.array(places), canvas.get_renderer()) == len(places)
        assert axes.texts[0].get_text() == "first"
        assert axes.texts[0].get_ha() == side


def test_t_sne_of_rows_that_are_one_or_have_one_number(tmp_path: Path, cli: Cli) -> None:
    pytest.importorskip("sklearn")
    out = cli("map", write(tmp_path / "a.vec", 12), "--output", tmp_path / "x.png", "--method", "tsne").out
    assert "a.vec, t-SNE: 12 words, " in out
    with pytest.raises(ValueError, match="--method: needs different vectors for tsne; got 9 equal ones"):
        neighbour_embedding(np.ones((9, 4), np.float32))
    places = neighbour_embedding(np.sign(random_table(12, 1).rows_VD))
    assert np.isfinite(places).all()


@pytest.mark.parametrize("true_distances", [True, False])
def test_a_panel_has_one_scale_where_distances_count(
    true_distances: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: seen.extend(figure.axes))
    places = np.random.default_rng(1).standard_normal((9, 2)) * [10, 1]
    draw([("", [""] * 9, places)], tmp_path / "x", picture_format="png", true_distances=true_distances)
    across, down = seen[0].transData.transform([[1, 0], [0, 1]]) - seen[0].transData.transform([0, 0])
    assert (across[0] == pytest.approx(down[1])) == true_distances


def write(path: Path, count: int, seed: int = 1) -> Path:
    table = random_table(count, 5, seed)
    return write_text(path, table.words, table.rows_VD)


def test_pictures(tmp_path: Path, cli: Cli) -> None:
    tables = [write(tmp_path / "a.vec", 30), write(tmp_path / "b.vec", 20, seed=2)]
    printed = cli("map", *tables, "--output", tmp_path / "x.svg", "--most-frequent", 12).out.splitlines()
    assert [line.split(",")[0] for line in printed] == [str(table) for table in tables]
    assert all(": 12 words, " in line for line in printed)
    text = (tmp_path / "x.svg").read_text()
    ElementTree.fromstring(text)
    assert text.count("<!-- w11 -->") == 2
    assert "<!-- w12 -->" not in text
    out = cli("map", tables[0], "--output", tmp_path / "x.png", "--words", "w3", "W9", "w20", "w4", "w3").out
    assert ": 4 words, 4 with labels" in out
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vec", "b.vec", "x.png", "x.svg"]


def test_words_and_names_that_no_xml_has(tmp_path: Path, cli: Cli) -> None:
    table = tmp_path / "a\udcff.vec"
    table.write_text("a\x01 1 2\nb\x1b 2 1\nc 3 5\nd 2 4\n")
    cli("map", table, "--output", tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    ElementTree.fromstring(text)
    assert r"<!-- a\x01 -->" in text


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, short = write(tmp_path / "a.vec", 9), write(tmp_path / "b.vec", 3)
    output = ("--output", tmp_path / "x.png")
    for flags, message in (
        (output + ("--words", "w1", "w20", "w2"), "--words: needs words that .*a.vec has; got 'w20'. Use w2"),
        (output + ("--words", "w1", "w2", "w2", "w2"), "--words: needs 4 words or more that every TABLE has; got 2"),
        (output + ("--most-frequent", 3), "--most-frequent: needs 4 words or more that every TABLE has; got 3"),
        (output, "TABLE: needs 4 words or more that every TABLE has; got 3"),
        (("--output", tmp_path / "x.word"), "--output: needs a name that ends in one of .* got .*x.word"),
    ):
        with pytest.raises(ValueError, match=message):
            command("map", short if message.startswith("TABLE") else table, *flags)
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ValueError, match="--method: needs scikit-learn for tsne; got a Python without it"):
        command("map", table, *output, "--method", "tsne")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vec", "b.vec"]
