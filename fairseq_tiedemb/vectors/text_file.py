"""Reads and writes word vectors in the text format of word2vec and GloVe: ``word x_1 ... x_D`` per line."""

from pathlib import Path
from typing import TextIO

import numpy as np

from fairseq_tiedemb.checkpoints.word_vectors import read_word_vectors
from fairseq_tiedemb.vectors.word_table import WordTable


def read_vectors(path: Path) -> WordTable:
    """Reads word vectors by ``read_word_vectors``, with its errors."""
    vectors = read_word_vectors(path, flag="TABLE", kinds="a checkpoint, a safetensors file, or vectors as text")
    return WordTable(str(path), list(vectors), np.stack(list(vectors.values())))


def write_vectors(table: WordTable, file: TextIO) -> int:
    """Writes word2vec's text format, from which float32 is read back bit for bit.

    Returns the number of words left out: the format has no empty words and no words with spaces.
    """
    kept = [row for row, word in enumerate(table.words) if word.split() == [word]]
    width = table.rows_VD.shape[1]
    file.write(f"{len(kept)} {width}\n")
    numbers = " %.9g" * width
    for row in kept:
        file.write(f"{table.words[row]}{numbers % tuple(table.rows_VD[row].tolist())}\n")
    return len(table.words) - len(kept)
