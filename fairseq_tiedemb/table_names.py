"""What embedding tables are called in checkpoints, of fairseq's models and ours, and which rows are special."""

import re

# fairseq's dictionaries begin with <s>, <pad>, </s>, <unk>.
PADDING_ROW = 1
SPECIAL_ROWS = 4

# The parts that tables play, as --role says them, and what they mean.
ROLES = {
    "in": "input of the decoder or language model, U of Press & Wolf",
    "out": "output, V of Press & Wolf",
    "tied": "the one table that is both",
    "sum": "input + output",
    "source": "input of the encoder",
}

# Of the families that fairseq has too, with one table for all words.
INPUTS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "decoder.output_projection.weight"

BANDS = r"\.embeddings\.\d+\.0"  # of adaptive inputs
# .table and .layer: factorised, the latter as version 0.1.0 called it.
TABLE = re.compile(
    r"(?:^|\.)(?:"
    rf"(?:embed_tokens|output|output_projection|embed_out|fc_out)(?:\.table|\.layer|{BANDS})?(?:\.weight)?"
    r"|adaptive_softmax\.(?:head\.word_proj(?:\.1)?|tail\.\d+\.2)\.weight"
    r")$"
)
LATER_BAND = re.compile(r"\.(?:embeddings\.[1-9]\d*\.0|tail\.\d+\.2)\.")


def is_table(name: str) -> bool:
    """Whether an entry of a state dict is a table, or a band of one, if it is a matrix."""
    return TABLE.search(name) is not None


def has_padding_row(name: str) -> bool:
    """Whether a table has the padding row: the words of an adaptive one are in several, and only the first has it."""
    return LATER_BAND.search(name) is None


def is_input_table(name: str, decoder: str) -> bool:
    """Whether an entry is the input table of a decoder, or a band of it.

    Args:
        name: of the entry.
        decoder: the decoder's own name, without a dot at its end.
    """
    return re.fullmatch(rf"{re.escape(decoder)}\.embed_tokens(?:{BANDS})?\.weight", name) is not None
