"""Vectors by counting: against the equations, restated word by word, and through the real command line."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from fairseq_tiedemb.vectors.counts import positive_mutual_information, singular_vectors, window_counts
from fairseq_tiedemb.vectors.word_table import read_vectors

from ..conftest import RunCommand
from .common import command

TEXT = "a b a c d\nb c\n\nd a b e a\nc\nb b a d c e\n"
WINDOW = 3


def sentences(text: str = TEXT) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def exact_counts(text: list[list[str]], window: int) -> Counter:
    found: Counter = Counter()
    for words in text:
        for centre, word in enumerate(words):
            for place, other in enumerate(words):
                if 0 < abs(place - centre) <= window:
                    found[word, other] += window + 1 - abs(place - centre)
    return found


def exact_information(counts: Counter, words: str, smoothing: float, shift: float) -> np.ndarray:
    total = sum(counts.values())
    of_word = {word: sum(n for (first, _), n in counts.items() if first == word) for word in words}
    smoothed = {word: n**smoothing if n else 0.0 for word, n in of_word.items()}
    matrix = np.zeros((len(words), len(words)))
    for (word, context), n in counts.items():
        p, q = of_word[word] / total, smoothed[context] / sum(smoothed.values())
        matrix[words.index(word), words.index(context)] = max(0.0, math.log(n / total / (p * q)) - math.log(shift))
    return matrix


def parts(text: list[list[str]], words: str, *lengths: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The text in parts of so many sentences."""
    bounds, found = np.cumsum([0, *lengths]), []
    for start, stop in zip(bounds, [*bounds[1:], len(text)], strict=True):
        numbered = [(words.index(word), number) for number, line in enumerate(text[start:stop]) for word in line]
        found.append((np.array(numbered, int).reshape(-1, 2)[:, 0], np.array(numbered, int).reshape(-1, 2)[:, 1]))
    return found


@pytest.mark.parametrize(
    ("lengths", "window"),
    [((), 1), ((1,), WINDOW), ((2, 2), WINDOW), ((3, 1, 1), 10**8)],  # the second has parts without a pair
)
def test_counts_are_those_of_all_pairs(lengths: tuple[int, ...], window: int) -> None:
    words, exact = "abcdef", exact_counts(sentences(), window)
    found = window_counts(parts(sentences(), words, *lengths), len(words), window)
    assert found.shape == (6, 6)
    assert {(words[i], words[j]): n for (i, j), n in found.todok().items()} == dict(exact)


@pytest.mark.parametrize(("smoothing", "shift"), [(1.0, 1.0), (0.75, 1.0), (0.75, 1.5), (0.0, 1.0)])
def test_information_is_that_of_the_equation(smoothing: float, shift: float) -> None:
    words, exact = "abcdef", exact_counts(sentences(), WINDOW)  # of f there is none
    counts = window_counts(parts(sentences(), words), len(words), WINDOW)
    kept = counts.toarray()
    found = positive_mutual_information(counts, smoothing=smoothing, shift=shift)
    expected = exact_information(exact, words, smoothing, shift)
    assert found.toarray() == pytest.approx(expected, abs=1e-12)
    assert (found.data > 0).all()
    assert found.nnz == (expected > 0).sum() > 0
    assert (counts.toarray() == kept).all()


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_singular_vectors(power: float) -> None:
    matrix = np.random.default_rng(2).random((12, 12))
    left, values, _ = np.linalg.svd(matrix)
    found = singular_vectors(scipy.sparse.csr_array(matrix), 4, power=power)
    expected = left[:, :4] * values[:4] ** power
    assert found @ found.T == pytest.approx(expected @ expected.T, abs=1e-9)
    assert np.linalg.norm(found, axis=0) == pytest.approx(values[:4] ** power, rel=1e-9)
    assert (found[np.abs(found).argmax(0), range(4)] > 0).all()
    assert np.array_equal(found, singular_vectors(scipy.sparse.csr_array(matrix), 4, power=power))


@pytest.fixture(scope="module")
def data(run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The text with a word more, x, which comes twice: windows reach over it."""
    folder = tmp_path_factory.mktemp("counts")
    (folder / "text").write_text(TEXT.replace("c d", "x c x d"))
    files = ("--trainpref", folder / "text", "--destdir", folder)
    run_command("preprocess", "--only-source", "--padding-factor", 1, *files)
    return folder


def test_the_command(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.vec"
    flags = ("--window", WINDOW, "--min-count", 2, "--dim", 3, "--shift", 1.2)
    text = [[word for word in line if word not in "x"] for line in sentences((data / "text").read_text())]
    assert text == sentences()
    # x comes twice, as does e; --min-count 3 leaves both out.
    for least, words in ((2, "abcdex"), (3, "abcd")):
        command("counts", data, *flags, "--min-count", least, "--output", path)
        table = read_vectors(path)
        assert set(table.words) == set(words)
        kept = [[word for word in line if word in words] for line in sentences((data / "text").read_text())]
        counts = exact_counts(kept, WINDOW)
        matrix = exact_information(counts, words, 0.75, 1.2)
        left, values, _ = np.linalg.svd(matrix)
        expected = left[:, :3] * values[:3] ** 0.5
        rows = table.rows_VD[[table.index[word] for word in words]]
        assert rows @ rows.T == pytest.approx(expected @ expected.T, abs=1e-5)
        printed = capsys.readouterr().out
        assert printed == (
            f"{path}: {len(words)} words, 3 wide; of {len(counts)} pairs of words that stand near each other "
            f"{(matrix > 0).sum()} count\n"
        )


def test_refusals(data: Path, tmp_path: Path) -> None:
    output = ("--output", tmp_path / "x.vec")
    for flags, message in (
        ((data, "--window", 0), "--window: needs 1 to 100,000,000; got 0"),
        ((data, "--shift", 0.5), "--shift: needs 1 or more; got 0.5. Use 1, say"),
        ((data, "--shift", "inf"), "--shift: needs 1 or more; got inf"),
        ((data, "--dim", 2, "--min-count", 1, "--shift", 1e9), "--shift: needs a number below .* got 1e[+]09, which"),
        ((data, "--power", -1), "--power: needs 0 to 4; got -1. Use 0.5, say"),
        ((data, "--power", 5), "--power: needs 0 to 4; got 5"),
        ((data, "--smoothing", "nan"), "--smoothing: needs 0 to 4; got nan"),
        ((data, "--min-count", 3, "--dim", 4), "--dim: needs fewer than .* that come 3 times .* got 4 for 4. Use"),
        ((data, "--train-subset", "no"), "--train-subset: needs a text of .* got .*no, without .bin or .idx. Use one"),
        ((tmp_path,), "DATA: needs a file; got .*dict.txt, which is none.*--only-source"),
        ((data, "--output", tmp_path / "none/x.vec"), "--output: needs a folder that exists; got .*none"),
    ):
        with pytest.raises(ValueError, match=message):
            command("counts", *(() if "--output" in flags else output), *flags)
    assert not list(tmp_path.iterdir())
