"""Classes of words by exchange, and their tree, against the likelihood as the model states it."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb.ngram.word_classes import codes_of_classes, exchange
from fairseq_tiedemb.outputs import read_classes

from ..conftest import Cli, RunCommand
from ..vectors.common import command

# Words 0 to 3 come before 4 to 7, those before 8 to 11, and these before the first.
KINDS = 3
EACH = 4


def text(length: int = 600, noise: float = 0.1, seed: int = 1) -> np.ndarray:
    """Words of kinds in turn, some of any kind."""
    random = np.random.default_rng(seed)
    words = EACH * (np.arange(length) % KINDS) + random.integers(0, EACH, length)
    anywhere = random.random(length) < noise
    words[anywhere] = random.integers(0, KINDS * EACH, anywhere.sum())
    return words


def log_likelihood(tokens: np.ndarray, class_of: np.ndarray) -> float:
    """sum of log p(c | c before) + log p(w | c) over all words but the first, by counting."""
    pairs = list(itertools.pairwise(tokens.tolist()))
    total = 0.0
    for before, word in pairs:
        kind, last = class_of[word], class_of[before]
        both = sum(class_of[b] == last and class_of[w] == kind for b, w in pairs)
        of_last = sum(class_of[b] == last for b, _ in pairs)
        of_kind = sum(class_of[w] == kind for _, w in pairs)
        of_word = sum(w == word for _, w in pairs)
        total += math.log(both / of_last) + math.log(of_word / of_kind)
    return total


def test_the_likelihood_is_that_of_the_model() -> None:
    tokens = text(80, noise=0.4)
    for rounds in (1, 5):
        found = exchange(tokens, 12, 4, rounds=rounds)
        assert found.log_likelihood == pytest.approx(log_likelihood(tokens, found.class_of), rel=1e-12)
    counts = np.zeros((4, 4))
    for before, word in itertools.pairwise(tokens):
        counts[found.class_of[before], found.class_of[word]] += 1
    assert found.bigrams == pytest.approx(counts)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_at_the_end_no_word_would_move(seed: int, repeats: int) -> None:
    """Neither in a text in which words stand behind themselves."""
    length = 60 if repeats == 1 else 25
    times = np.random.default_rng(seed).integers(1, repeats + 1, length)
    tokens = np.repeat(text(length, noise=0.5, seed=seed), times)
    found = exchange(tokens, 12, 3, rounds=50)
    assert found.moved[-1] == 0
    assert len(found.moved) < 50
    assert found.log_likelihood == pytest.approx(log_likelihood(tokens, found.class_of), rel=1e-12)
    for word, other in itertools.product(range(12), range(3)):
        moved = found.class_of.copy()
        moved[word] = other
        assert log_likelihood(tokens, moved) <= found.log_likelihood + 1e-9


def test_each_round_raises_the_likelihood() -> None:
    tokens = text(200, noise=0.6)
    reported: list[tuple[int, int]] = []
    values = [exchange(tokens, 12, 3, rounds=rounds).log_likelihood for rounds in (1, 2, 3, 50)]
    found = exchange(tokens, 12, 3, rounds=50, report=lambda *each: reported.append(each))
    assert values == sorted(values)
    assert values[-1] == found.log_likelihood
    assert reported == list(enumerate(found.moved, start=1))


def test_words_start_in_turn_the_frequent_first() -> None:
    tokens = np.array([2, 0, 2, 1, 2, 1, 2])
    found = exchange(tokens, 5, 3, rounds=5)  # where words that are alone have no reason to move
    assert found.moved == [0]
    assert found.class_of.tolist() == [2, 1, 0, 0, 1]  # the last two do not occur


def information(bigrams: np.ndarray) -> float:
    """What of log P depends on the classes."""
    total = 0.0
    for (one, other), count in np.ndenumerate(bigrams):
        if count:
            total += count * math.log(count / (bigrams[one].sum() * bigrams[:, other].sum()))
    return total


def united(bigrams: np.ndarray, one: int, other: int) -> np.ndarray:
    """Two classes as one, in the place of the first."""
    belongs = np.eye(len(bigrams))
    belongs[other] = belongs[one]
    return np.delete(np.delete(belongs.T @ bigrams @ belongs, other, 0), other, 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_tree_unites_the_classes_that_cost_least(seed: int) -> None:
    bigrams = np.random.default_rng(seed).poisson(3.0, (7, 7)).astype(float)
    bigrams[2] = bigrams[:, 2] = 0  # a class without words
    found = codes_of_classes(bigrams)
    expected, groups, left = [""] * 7, [[number] for number in range(7)], bigrams
    while len(groups) > 1:
        pairs = itertools.combinations(range(len(groups)), 2)
        one, other = max(pairs, key=lambda pair: round(information(united(left, *pair)), 9))
        for group, bit in ((one, "0"), (other, "1")):
            for number in groups[group]:
                expected[number] = bit + expected[number]
        left = united(left, one, other)
        groups[one] += groups.pop(other)
    assert found == expected
    assert codes_of_classes(np.ones((1, 1))) == [""]
    assert sum(2.0 ** -len(code) for code in found) == 1.0


@pytest.fixture(scope="module")
def data(run_command: RunCommand, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    lines = ["".join(chr(ord("a") + word) + " " for word in row) for row in text(960).reshape(-1, 12)]
    (folder / "text").write_text("\n".join(lines))
    files = ("--trainpref", folder / "text", "--destdir", folder, "--padding-factor", 1)
    run_command("preprocess", "--only-source", *files)
    return folder


def test_the_command(data: Path, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "classes"
    printed, progress = cli("classes", data, "--classes", 4, "--output", path)
    assert progress.startswith("round 1: ")
    assert "13 words in 4 classes of 1 to 4; perplexity of the class bigram model on this text: " in printed
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    letters = (data / "text").read_text()
    assert {word: int(count) for _, word, count in rows} == {
        **{letter: letters.count(letter) for letter in "abcdefghijkl"},
        "</s>": 80,
    }
    sets = {frozenset(word for bits, word, _ in rows if bits == code) for code, _, _ in rows}
    assert sets == {frozenset("abcd"), frozenset("efgh"), frozenset("ijkl"), frozenset(["</s>"])}
    # By class, and there by count.
    assert [(bits, -int(count)) for bits, _, count in rows] == sorted((bits, -int(count)) for bits, _, count in rows)
    given = read_classes(str(path), {word: number for number, (_, word, _) in enumerate(rows)})
    assert given.class_of.bincount().tolist() == [sum(bits == code for bits, _, _ in rows) for code in given.names]
    tokens = ["</s>" if word is None else word for line in letters.splitlines() for word in (*line.split(), None)]
    number = {word: index for index, (_, word, _) in enumerate(rows)}
    likelihood = log_likelihood(np.array([number[word] for word in tokens]), given.class_of.numpy())
    assert printed.split()[-1] == f"{math.exp(-likelihood / (len(tokens) - 1)):.2f}"


def test_refusals(data: Path, run_command: RunCommand, tmp_path: Path) -> None:
    output, blank = ("--output", tmp_path / "x"), tmp_path / "blank"
    blank.mkdir()
    (blank / "text").write_text("\n\n")
    run_command("preprocess", "--only-source", "--trainpref", blank / "text", "--destdir", blank)
    for flags, message in (
        ((data, "--classes", 1), "--classes: needs 2 to 13, the words that the text has; got 1. Use 4, say"),
        ((data, "--classes", 14), "--classes: needs 2 to 13, the words that the text has; got 14"),
        ((data, "--train-subset", "no"), "--train-subset: needs a text of .* got .*no, without .bin or .idx"),
        ((tmp_path,), "DATA: needs a file; got .*dict.txt, which is none.*--only-source"),
        ((data, "--output", tmp_path / "none/x"), "--output: needs a folder that exists; got .*none"),
        ((blank,), "--train-subset: needs two different words or more; got 1 in train of .*blank"),
    ):
        with pytest.raises(ValueError, match=message):
            command("classes", *output, *flags)
    assert [path.name for path in tmp_path.iterdir()] == ["blank"]
