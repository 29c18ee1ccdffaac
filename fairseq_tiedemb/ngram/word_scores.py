"""Token scores of a language model in a text file, one line per token, in the order of the text:

    natural logarithm of the token's probability <tab> the token

The token is the predicted one: <unk> for an unknown word, </s> at the end of a sentence. ``fairseq-tiedemb score
--per-word`` writes the file, ``ngram --interpolate`` reads it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from ..checkpoints.text import read_lines


class WordScores(NamedTuple):
    """Tokens (N,) and their natural log-probabilities (N,)."""

    tokens: list[str]
    logs: NDArray[np.float64]


def write_word_scores(scores: Iterable[tuple[str, float]], file: TextIO) -> None:
    """Writes tokens with their log-probabilities, in nine digits, which restore a float32 exactly."""
    file.writelines(f"{log:.9g}\t{token}\n" for token, log in scores)


def read_word_scores(path: str | Path, *, flag: str) -> WordScores:
    """Reads a file of token scores in UTF-8; ValueError, naming `flag` and the first line of another form."""
    scores = []
    for number, line in read_lines(path, flag=flag):
        score = _parsed(line)
        if score is None:
            needs = "lines `logarithm of a probability <tab> token`"
            use = "the file that fairseq-tiedemb score --per-word wrote"
            raise ValueError(f"{flag}: needs {needs}; got {line.rstrip()!r} in line {number} of {path}. Use {use}.")
        scores.append(score)
    if not scores:
        raise ValueError(f"{flag}: needs one line per token; got {path}, which is empty. Use score --per-word again.")
    tokens, logs = zip(*scores, strict=True)
    return WordScores(list(tokens), np.array(logs))


def is_word_scores(path: str | Path, *, flag: str) -> bool:
    """Whether a file's first line has the form of a token score; errors are those of ``read_lines``."""
    return _parsed(next(read_lines(path, flag=flag), (0, ""))[1]) is not None


def _parsed(line: str) -> tuple[str, float] | None:
    """Token and logarithm of its probability; None for another line."""
    log, _, token = line.rstrip("\n").partition("\t")
    try:
        value = float(log)
    except ValueError:
        return None
    return (token, value) if value <= 1e-6 and token.split() == [token] else None
