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
    """Reads a file of token scores in UTF-8; errors name `flag`.

    Raises:
        ValueError: naming the first line of another form, or with a logarithm above 0.
    """
    tokens, logs = [], []
    for number, line in read_lines(path, flag=flag):
        log, tab, token = line.rstrip("\n").partition("\t")
        value = _log(log)
        if value is None or not token or not tab or token.split() != [token]:
            raise ValueError(
                f"{flag}: needs lines `logarithm of a probability <tab> token`; got {line.rstrip()!r} in line {number} "
                f"of {path}. Use the file that fairseq-tiedemb score --per-word wrote."
            )
        tokens.append(token)
        logs.append(value)
    if not tokens:
        raise ValueError(f"{flag}: needs one line per token; got {path}, which is empty. Use score --per-word again.")
    return WordScores(tokens, np.array(logs))


def is_word_scores(path: str | Path, *, flag: str) -> bool:
    """Whether a file's first line has the form of a token score.

    Raises:
        ValueError: if the file cannot be read, see ``read_lines``.
    """
    _, line = next(read_lines(path, flag=flag), (0, ""))
    log, tab, token = line.rstrip("\n").partition("\t")
    return bool(tab) and _log(log) is not None and token.split() == [token]


def _log(text: str) -> float | None:
    """Parses the logarithm of a probability; None for other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value <= 1e-6 else None
