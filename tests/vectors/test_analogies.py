"""Analogies: against a loop over all words, the exclusion, coverage, totals, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from fairseq_tiedemb.vectors import analogies
from fairseq_tiedemb.vectors.analogies import Section, answer, in_total, read_questions
from fairseq_tiedemb.vectors.word_table import WordTable

from ..conftest import Cli
from .common import exact_cosine, random_table, table, write_text

WORDS = "man woman king queen boy girl Paris France Rome Italy"
# One direction for each kind, one for each relation.
ROWS = [
    [1, 0, 0, 0, 0], [1, 0, 0, 1, 0], [0, 2, 0, 0, 0], [0, 2, 0, 1, 0], [0, 0, 1, 0, 0],
    [0, 0, 1, 1, 0], [2, 2, 0, 0, 1], [2, 2, 0, 0, 0], [0, 2, 2, 0, 1], [0, 2, 2, 0, 0],
]  # fmt: skip
TEXT = """: family
man woman king queen
man woman boy girl

: capital-world
Paris France Rome Italy
Paris France Berlin Germany
: gram1-wrong
man king woman boy
: gram2-empty
"""


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.txt"
    path.write_bytes(TEXT.replace("\n", "\r\n").encode())
    return path


def exact_answer(words: WordTable, a: str, b: str, c: str, *, multiply: bool) -> str:
    vector = {word.lower(): row for word, row in zip(words.words, words.rows_VD, strict=True)}
    best: tuple[float, str] = (-np.inf, "")
    for x in vector:
        if x in (a, b, c):
            continue
        to_a, to_b, to_c = (exact_cosine(vector[x], vector[each]) for each in (a, b, c))
        score = to_b - to_a + to_c
        if multiply:
            score = (to_b + 1) / 2 * (to_c + 1) / 2 / ((to_a + 1) / 2 + 0.001)
        best = max(best, (score, x))
    return best[1]


@pytest.mark.parametrize(("multiply", "block"), [(False, 1), (False, 100), (False, 10**6), (True, 100)])
def test_against_a_loop_over_all_words(multiply: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analogies, "BLOCK", block)
    words = random_table(30, 5)
    rng = np.random.default_rng(1)
    drawn = [tuple(words.words[i] for i in rng.choice(30, 3, replace=False)) for _ in range(40)]
    answers = [exact_answer(words, *each, multiply=multiply) for each in drawn]
    pairs = list(zip(drawn, answers, strict=True))
    right = [(*each, found) for each, found in pairs]
    wrong = [(*each, next(w for w in words.words if w not in (*each, found))) for each, found in pairs]
    mixed = [Section("mixed", [*right[:25], *wrong[:15]]), Section("right", right)]
    found = answer([words], mixed, most_frequent=30, multiply=multiply)
    assert [each.right for each in found] == [[25], [40]]


def test_sections_and_totals(questions: Path) -> None:
    sections = read_questions(questions)
    found = answer([table(WORDS, ROWS)], sections, most_frequent=100)
    rows = [(each.name, each.right, each.asked, each.total) for each in [*found, *in_total(found)]]
    assert rows == [
        ("family", [2], 2, 2),
        ("capital-world", [1], 1, 2),
        ("gram1-wrong", [0], 1, 1),
        ("gram2-empty", [0], 0, 0),
        ("semantic", [3], 3, 4),
        ("syntactic", [0], 1, 1),
        ("total", [3], 4, 5),
    ]


def test_the_words_of_the_question_are_no_answers() -> None:
    # b - a + c is nearest to b itself.
    words = table("a b c d", [[1, 0, 0], [0, 1, 0], [1, 0.1, 0], [0, 0.3, 1]])
    assert answer([words], [Section("s", [("a", "b", "c", "d")])], most_frequent=9)[0].right == [1]
    assert answer([words], [Section("s", [("a", "b", "c", "b")])], most_frequent=9)[0].right == [0]
    few = table("a b c", [[1, 0], [0, 1], [1, 1]])  # where no other word is left
    assert answer([few], [Section("s", [("a", "b", "c", "a")])], most_frequent=9)[0].right == [0]


def test_only_the_most_frequent_are_asked_for_and_answer() -> None:
    words = table("a b c d better", [[1, 0], [0, 1], [1, 0.1], [0.5, 1], [0.05, 1]])
    question = [Section("s", [("a", "b", "c", "d")])]
    assert answer([words], question, most_frequent=5)[0].right == [0]
    assert answer([words], question, most_frequent=4)[0].right == [1]
    assert answer([words], question, most_frequent=3)[0].asked == 0


def test_only_questions_that_all_tables_can_answer(questions: Path) -> None:
    full, part = table(WORDS, ROWS), table("man woman king queen", ROWS[:4])
    found = answer([full, part], read_questions(questions), most_frequent=100)
    assert [(each.asked, each.right) for each in found] == [(1, [1, 1]), (0, [0, 0]), (0, [0, 0]), (0, [0, 0])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b c d\n", "got 'a b c d' in line 1 of .*bad.txt"),
        (": s\na b c\n", "got 'a b c' in line 2"),
        (": s\n", "needs at least one question; got .*bad.txt"),
        (None, "needs a text file; got .*bad.txt"),
    ],
)
def test_refused_questions(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=f"--questions: .*{message}"):
        read_questions(path)


def test_the_command(questions: Path, tmp_path: Path, cli: Cli) -> None:
    write_text(tmp_path / "a.vec", WORDS.split(), ROWS)
    for flags in ([], ["--multiply"]):
        out = cli("analogy", tmp_path / "a.vec", "--questions", questions, *flags).out
        printed = [line.split() for line in out.splitlines()]
        assert printed[2] == ["family", "2", "2", "1.000"]
        assert printed[5] == ["gram2-empty", "0", "0", "-"]
        assert printed[-1] == ["total", "4", "5", "0.750"]
