"""Files that say which word each row of a table is."""

from pathlib import Path
from typing import Any

from fairseq_tiedemb.reading.dictionaries import FAIRSEQ_WORDS
from fairseq_tiedemb.reading.json_text import parse_json

OVERWRITE = " #fairseq:overwrite"
# Rows that stand for no part of a text, by their names in the dictionaries that have one.
NO_WORDS = {"<s>", "<pad>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"}


def read_words(path: Path, *, flag: str = "--dict") -> dict[int, str]:
    """The word of each row, without those that stand for no part of a text; for arguments see ``read_rows``."""
    return without_marks(read_rows(path, flag=flag))


def without_marks(words: dict[int, str]) -> dict[int, str]:
    """The words without those that stand for no part of a text, ``<s>`` and ``<pad>`` among them."""
    return {row: word for row, word in words.items() if word not in NO_WORDS}


def read_rows(path: Path, *, flag: str = "--dict") -> dict[int, str]:
    """The word of each row.

    Args:
        path: dict.txt of fairseq (a word and its count a line; rows begin with fairseq's own four symbols), vocab.txt
            (a token a line), vocab.json (token to row), or tokenizer.json, whose special tokens are left out.
        flag: that errors name.

    Raises:
        ValueError: if it is none of these.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        return _from_json(parse_json(text)) if path.suffix == ".json" else _from_lines(text)
    except OSError as error:
        raise ValueError(f"{flag}: needs a dictionary; got {path} ({error.strerror}). Use another path.") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{flag}: needs dict.txt of fairseq-preprocess, or vocab.txt, vocab.json or tokenizer.json of a tokenizer; "
            f"got {path} ({error}). Use the one that belongs to the table."
        ) from None


def _from_lines(text: str) -> dict[int, str]:
    # Not splitlines(), to which characters inside of words are ends of lines.
    lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    fields = [line.removesuffix(OVERWRITE).rsplit(" ", 1) for line in lines]
    if not any(len(each) > 1 for each in fields):
        return dict(enumerate(lines))
    words = {}
    for number, each in enumerate(fields, 1):
        if len(each) < 2 or not each[1].isdigit():
            raise ValueError(f"line {number} has no count: {lines[number - 1][:60]!r}")
        words[number - 1 + len(FAIRSEQ_WORDS)] = each[0]
    return dict(enumerate(FAIRSEQ_WORDS)) | words


def _from_json(content: Any) -> dict[int, str]:
    added = content.get("added_tokens", [])
    vocabulary = content["model"]["vocab"] if "model" in content else content
    if isinstance(vocabulary, list):  # with a score each
        vocabulary = {token: row for row, (token, _) in enumerate(vocabulary)}
    words = {int(row): str(token) for token, row in vocabulary.items()}
    words |= {int(each["id"]): str(each["content"]) for each in added}
    special = {int(each["id"]) for each in added if each.get("special")}
    return {row: word for row, word in sorted(words.items()) if row not in special}
