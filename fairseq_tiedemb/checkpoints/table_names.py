"""Names of embedding tables in checkpoints of fairseq and of this package, and their row of padding."""

import re
from collections.abc import Iterable

from .dictionaries import FAIRSEQ_WORDS

PADDING_ROW = FAIRSEQ_WORDS.index("<pad>")

# Roles of tables: values of --role with their descriptions.
ROLES = {
    "in": "input of the decoder or language model, U of Press & Wolf",
    "out": "output, V of Press & Wolf",
    "tied": "the one table that is both",
    "sum": "input + output",
    "source": "input of the encoder",
}

# Names in model families shared with fairseq, with a single table for the vocabulary.
INPUTS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "decoder.output_projection.weight"

# The last part of tables' names: fc_out and fc3 are of fairseq's recurrent and convolutional models.
NAMES = {"in": ("embed_tokens",), "out": ("output", "output_projection", "fc_out", "fc3", "embed_out")}
ANY_NAME = "|".join(name for names in NAMES.values() for name in names)

BANDS = r"\.embeddings\.\d+\.0"  # of adaptive inputs
FACTORISED = r"\.table|\.layer"  # checkpoints of version 0.1.0 have .layer
TABLE = re.compile(
    rf"(?:^|\.)(?:(?:{ANY_NAME})(?:{FACTORISED}|{BANDS})?(?:\.weight)?"
    r"|adaptive_softmax\.(?:head\.word_proj(?:\.1)?|tail\.\d+\.2)\.weight)$"
)
LATER_BAND = re.compile(r"\.(?:embeddings\.[1-9]\d*\.0|tail\.\d+\.2)\.")


def is_table(name: str) -> bool:
    """Whether a state-dict entry is an embedding table or a band of one, provided that it is a matrix."""
    return TABLE.search(name) is not None


def table_name(names: Iterable[str], side: str, role: str) -> str | None:
    """Returns which of a state dict's names is the table of `side`, encoder or decoder, for `role`, in or out."""
    wanted = re.compile(rf"{side}\.(?:{'|'.join(NAMES[role])})(?:{FACTORISED})?(?:\.weight)?")
    return next(filter(wanted.fullmatch, names), None)


def has_padding_row(name: str) -> bool:
    """Whether a table has the padding row; of an adaptive table's bands only the first one does."""
    return LATER_BAND.search(name) is None


def is_input_table(name: str, decoder: str) -> bool:
    """Whether a state-dict entry is the input table of ``decoder``, a name without trailing dot, or a band of it."""
    return re.fullmatch(rf"{re.escape(decoder)}\.embed_tokens(?:{BANDS})?\.weight", name) is not None
