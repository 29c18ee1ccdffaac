"""Reads dictionary files, which name the word of every row of a table."""

from pathlib import Path
from typing import Any

from fairseq_tiedemb.checkpoints.dictionaries import FAIRSEQ_WORDS
from fairseq_tiedemb.checkpoints.text import parse_dict, parse_json, read_lines

# Special symbols of fairseq's dictionaries and of tokenizers, which stand for no part of a text.
NO_WORDS = {"<s>", "<pad>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"}


def without_marks(words: dict[int, str]) -> dict[int, str]:
    """Drops special symbols such as ``<s>`` and ``<pad>``."""
    return {row: word for row, word in words.items() if word not in NO_WORDS}


def read_rows(path: Path) -> dict[int, str]:
    """Returns a dictionary's words by row; errors name --dict.

    It is fairseq's dict.txt (word and count per line, after fairseq's four special symbols), vocab.txt (a token per
    line), vocab.json (token to row), or tokenizer.json, whose special tokens are left out.
    """
    numbered = list(read_lines(path, flag="--dict"))  # once: it may be a pipe
    lines = [line.removesuffix("\n") for _, line in numbered]
    if path.suffix != ".json":
        is_dict = any(" " in line for line in lines)
        words = [*FAIRSEQ_WORDS, *(word for word, _ in parse_dict(numbered, path, flag="--dict"))] if is_dict else lines
        return dict(enumerate(words))
    try:
        return _from_json(parse_json("\n".join(lines)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        needs = "dict.txt of fairseq-preprocess, or vocab.txt, vocab.json or tokenizer.json of a tokenizer"
        raise ValueError(f"--dict: needs {needs}; got {path} ({error}). Use the dictionary of the table.") from None


def _from_json(content: Any) -> dict[int, str]:
    is_tokenizer = isinstance(content.get("model"), dict)  # GPT-2's vocab.json has a token `model`
    added, vocabulary = (content.get("added_tokens", []), content["model"]["vocab"]) if is_tokenizer else ([], content)
    if isinstance(vocabulary, list):  # of (token, score) pairs
        vocabulary = {token: row for row, (token, _) in enumerate(vocabulary)}
    words = {_row(row, token): str(token) for token, row in vocabulary.items()}
    if len(words) < len(vocabulary):
        raise ValueError(f"{len(vocabulary):,} tokens in {len(words):,} rows")
    words |= {_row(each["id"], each["content"]): str(each["content"]) for each in added}
    special = {each["id"] for each in added if each.get("special")}
    return {row: word for row, word in sorted(words.items()) if row not in special}


def _row(row: Any, token: str) -> int:
    if type(row) is not int or row < 0:  # a bool is an int, too; -1 would be the last row
        raise ValueError(f"row {row} of {token!r}")
    return row
