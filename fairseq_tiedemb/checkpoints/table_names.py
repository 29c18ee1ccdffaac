"""Names of embedding tables in checkpoints of fairseq and of this package, and their row of padding."""

import re

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

BANDS = r"\.embeddings\.\d+\.0"  # of adaptive inputs
# .table and .layer are factorised tables; checkpoints of version 0.1.0 have .layer.
TABLE = re.compile(
    r"(?:^|\.)(?:"
    rf"(?:embed_tokens|output|output_projection|embed_out|fc_out)(?:\.table|\.layer|{BANDS})?(?:\.weight)?"
    r"|adaptive_softmax\.(?:head\.word_proj(?:\.1)?|tail\.\d+\.2)\.weight"
    r")$"
)
LATER_BAND = re.compile(r"\.(?:embeddings\.[1-9]\d*\.0|tail\.\d+\.2)\.")


def is_table(name: str) -> bool:
    """Whether a state-dict entry is an embedding table or a band of one, provided that it is a matrix."""
    return TABLE.search(name) is not None


def has_padding_row(name: str) -> bool:
    """Whether a table has the padding row; of an adaptive table's bands only the first one does."""
    return LATER_BAND.search(name) is None


def is_input_table(name: str, decoder: str) -> bool:
    """Whether a state-dict entry is the input table of ``decoder``, a name without trailing dot, or a band of it."""
    return re.fullmatch(rf"{re.escape(decoder)}\.embed_tokens(?:{BANDS})?\.weight", name) is not None
