"""Word analogies: a is to b as c is to which word?

Source: Mikolov et al. 2013 (questions-words.txt, 3CosAdd); Levy & Goldberg 2014, "Linguistic Regularities in Sparse and
Explicit Word Representations", eq. 4 (3CosMul).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairseq_tiedemb.checkpoints.text import read_lines
from fairseq_tiedemb.vectors.word_table import WordTable, unit_rows

EPSILON = 1e-3  # in 3CosMul's denominator, as in the paper
BLOCK = 2**22  # scores in memory at a time
SYNTACTIC = "gram"  # prefix of the names of syntactic sections


class Section(NamedTuple):
    """A named section of questions, which are four lower-case words each."""

    name: str
    questions: list[tuple[str, str, str, str]]


class Answers(NamedTuple):
    """The result of a section: how many of its questions were asked, and by table how many answers are right."""

    name: str
    asked: int  # those whose words all tables have
    total: int
    right: list[int]


def read_questions(path: Path) -> list[Section]:
    """Reads a file of ``: section`` and ``a b c d`` lines."""
    sections: list[Section] = []
    for number, line in read_lines(path, flag="--questions"):
        words = line.lower().split()
        if not words:
            continue
        if words[0].startswith(":"):
            sections.append(Section(line.strip(": \t\n"), []))
        elif len(words) == 4 and sections:
            sections[-1].questions.append((words[0], words[1], words[2], words[3]))
        else:
            needs = "`: section` lines, with lines of four words below"
            got = f"{line.rstrip()[:60]!r} in line {number} of {path}"
            raise ValueError(f"--questions: needs {needs}; got {got}. Use the format of questions-words.txt.")
    if not any(section.questions for section in sections):
        raise ValueError(f"--questions: needs at least one question; got {path}, which has none. Use another.")
    return sections


def answer(
    tables: Sequence[WordTable], sections: Sequence[Section], *, most_frequent: int, multiply: bool = False
) -> list[Answers]:
    """Answers every question whose four words all tables have; a, b and c are excluded as answers.

        3CosAdd: argmax_x cos(x, b) - cos(x, a) + cos(x, c)
        3CosMul: argmax_x s(x, b) s(x, c) / (s(x, a) + 0.001)      with s = (cos + 1) / 2

    Args:
        tables: the tables. Words are compared in lower case; of equal ones the lower-case word counts, else the first.
        sections: the questions.
        most_frequent: number of words, the first of each table, that take part.
        multiply: use 3CosMul instead of 3CosAdd.
    """
    indexes = [table.folded(most_frequent) for table in tables]
    common = set(indexes[0]).intersection(*indexes)
    kept = [[question for question in section.questions if common.issuperset(question)] for section in sections]
    asked = [question for questions in kept for question in questions]
    ends = np.cumsum([len(questions) for questions in kept])[:-1]
    pairs = zip(tables, indexes, strict=True)
    marks = [np.split(_marks(*pair, asked, multiply=multiply), ends) for pair in pairs]
    return [
        Answers(section.name, len(questions), len(section.questions), [int(part.sum()) for part in right])
        for section, questions, *right in zip(sections, kept, *marks, strict=True)
    ]


def in_total(results: Sequence[Answers]) -> list[Answers]:
    """Sums results over the semantic, the syntactic ("gram...") and all sections; sums, not means of sections."""
    totals = []
    for kind, kinds in {"semantic": (False,), "syntactic": (True,), "total": (False, True)}.items():
        part = [section for section in results if section.name.startswith(SYNTACTIC) in kinds]
        if part:
            right = [sum(counts) for counts in zip(*(section.right for section in part), strict=True)]
            totals.append(Answers(kind, sum(each.asked for each in part), sum(each.total for each in part), right))
    return totals


def _marks(
    table: WordTable, index: dict[str, int], questions: Sequence[tuple[str, str, str, str]], *, multiply: bool
) -> np.ndarray:
    """Returns a mask (n,) of the questions that the table answers right."""
    candidates = np.array(sorted(index.values()))
    units = unit_rows(table.rows_VD[candidates])
    words = np.searchsorted(candidates, [[index[word] for word in question] for question in questions]).reshape(-1, 4)
    right = np.zeros(len(words), bool)
    block = max(1, BLOCK // max(1, len(units)))
    for start in range(0, len(words), block):
        a, b, c, d = words[start : start + block].T
        if multiply:
            s_a, s_b, s_c = ((units[rows] @ units.T + 1) / 2 for rows in (a, b, c))
            scores = s_b * s_c / (s_a + EPSILON)
        else:
            scores = (units[b] - units[a] + units[c]) @ units.T
        scores[np.arange(len(a)), [a, b, c]] = -np.inf
        right[start : start + block] = (scores.argmax(1) == d) & (scores.max(1) > -np.inf)  # some word is left
    return right
