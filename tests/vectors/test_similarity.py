"""Word similarity: against the definition, on files as they are published, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb.vectors.similarity import agreement, read_pairs
from fairseq_tiedemb.vectors.word_table import unit_rows

from ..conftest import Cli
from .common import exact_cosine, exact_spearman, random_table, table, write_text

SET = "w0\tw1\t1.5\r\nW2 w3  9\n\n# a comment\nw4\tW5\t2.5\textra 7\nw0 w9 2.5\nw0\tw1\t3\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "my-set.txt"
    path.write_bytes(b"\xef\xbb\xbf" + SET.encode())
    return path


def test_a_file_with_all_that_files_have(pairs: Path) -> None:
    found = read_pairs(pairs)
    assert found.name == "my-set"
    assert found.pairs == [("w0", "w1"), ("w2", "w3"), ("w4", "w5"), ("w0", "w9"), ("w0", "w1")]
    assert found.scores.tolist() == [1.5, 9.0, 2.5, 2.5, 3.0]


def test_against_the_definition(pairs: Path) -> None:
    words = random_table(9, 4)
    rows = words.rows_VD
    (rho,) = (found := agreement([words], read_pairs(pairs))).rhos
    assert (found.used, found.total) == (4, 5)  # w9 is missing
    cosines = [exact_cosine(rows[i], rows[j]) for i, j in ((0, 1), (2, 3), (4, 5), (0, 1))]
    assert rho == pytest.approx(exact_spearman([1.5, 9.0, 2.5, 3.0], cosines), abs=1e-12)

    found = agreement([words], read_pairs(pairs), missing_as_zero=True)
    assert (found.used, found.total, found.with_both) == (5, 5, [4])
    cosines.insert(3, 0.0)
    assert found.rhos[0] == pytest.approx(exact_spearman([1.5, 9.0, 2.5, 2.5, 3.0], cosines), abs=1e-12)


def test_all_tables_are_measured_on_the_same_pairs(pairs: Path) -> None:
    first, second = random_table(12, 4), random_table(4, 3, seed=2)
    both = agreement([first, second], read_pairs(pairs))
    assert (both.used, both.total, both.with_both) == (3, 5, [5, 3])
    cut = table(first.words[:4], first.rows_VD[:4])
    assert both.rhos == [agreement([each], read_pairs(pairs)).rhos[0] for each in (cut, second)]
    zero = agreement([first, second], read_pairs(pairs), missing_as_zero=True)
    assert zero.rhos == [agreement([each], read_pairs(pairs), missing_as_zero=True).rhos[0] for each in (first, second)]


def test_equal_cosines_are_ties_whatever_their_last_digits(tmp_path: Path) -> None:
    words = random_table(40, 7)
    lines = [f"w{n} w{n} {n}" for n in range(30)] + [f"w{n} w{n + 1} {n}" for n in range(30, 39)]
    (tmp_path / "set.txt").write_text("\n".join(lines) + "\n")
    rows = words.rows_VD
    cosines = [1.0] * 30 + [exact_cosine(rows[n], rows[n + 1]) for n in range(30, 39)]
    [rho] = agreement([words], read_pairs(tmp_path / "set.txt")).rhos
    assert rho == pytest.approx(exact_spearman([float(line.split()[2]) for line in lines], cosines), abs=1e-12)


def test_case() -> None:
    words = table("May may MAY The IBM ibM", np.eye(6))
    assert words.folded() == {"may": 1, "the": 3, "ibm": 4}
    assert words.folded(1) == {"may": 0}


def test_a_row_of_zeros_stays_so() -> None:
    assert unit_rows(np.array([[0, 0], [3, 4]], np.float32)).tolist() == [[0, 0], [np.float32(0.6), np.float32(0.8)]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b 1\na b\n", "got 'a b' in line 2 of .*set.txt"),
        ("Word 1,Word 2,Human (mean)\n", "got 'Word 1,Word 2,Human .mean.' in line 1"),
        ("a b nan\n", "got 'a b nan' in line 1"),
        ("# nothing\n\n", "needs at least one pair of words; got .*set.txt"),
        ("caf\xe9 b 1\n".encode("latin1"), "needs UTF-8 text; got .*set.txt"),
        (None, r"needs a text file; got .*set.txt \(No such file"),
    ],
)
def test_refused_sets(text: str | bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "set.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=f"--sets: .*{message}"):
        read_pairs(path)


def test_the_command(pairs: Path, tmp_path: Path, cli: Cli) -> None:
    words = random_table(9, 4)
    write_text(tmp_path / "a.vec", words.words, words.rows_VD)
    found = agreement([words], read_pairs(pairs))
    header, columns, row = cli("similarity", tmp_path / "a.vec", "--sets", pairs).out.splitlines()
    assert header == f"[1] {tmp_path}/a.vec: 9 words, 4 wide"
    assert columns.split() == ["set", "pairs", "of", "[1]"]
    assert row.split()[:4] == ["my-set", "4", "5", f"{found.rhos[0]:.3f}"]
    cells = cli("similarity", tmp_path / "a.vec", "--sets", pairs, "--missing-as-zero").out.splitlines()[-1].split()
    assert (cells[1:3], cells[-2:]) == (["5", "5"], ["has", "4"])
    pairs.write_text("x y 1\n")
    out = cli("similarity", tmp_path / "a.vec", "--sets", pairs).out
    assert out.splitlines()[-1].split() == ["my-set", "0", "1", "-"]
