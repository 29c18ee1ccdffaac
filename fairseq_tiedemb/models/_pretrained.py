"""Word vectors from a file, as initial rows of a table."""

import logging
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary

from ..checkpoints.word_vectors import read_word_vectors
from ..embedding import SharedEmbedding

logger = logging.getLogger(__name__)


def load_and_freeze(table: SharedEmbedding, cfg: Any, side: str, dictionary: Dictionary) -> None:
    """Loads the vectors of ``--SIDE-embed-path`` and freezes the table, as the options ``cfg`` say.

    Words of the `dictionary`, which has a word for each row, keep their initial rows if the file lacks them. Raises
    ValueError as ``read_pretrained``.
    """
    if path := getattr(cfg, f"{side}_embed_path"):
        flag = f"--{side}-embed-path"
        vectors = read_pretrained(path, dictionary, table.embedding_dim, flag=flag)
        with torch.no_grad():
            for word, vector in vectors.items():
                table.weight[dictionary.index(word)] = torch.from_numpy(vector).to(table.weight)
        logger.info(f"{flag}: {len(vectors):,} of {len(dictionary):,} words have a vector in {path}")
    if getattr(cfg, f"{side}_freeze_embed", False):  # which fairseq's families lack
        table.weight.requires_grad_(False)


def read_pretrained(path: str, dictionary: Dictionary, width: int, *, flag: str) -> dict[str, Any]:
    """The vectors that a text file has of a dictionary's words.

    Raises ValueError if the file is missing or damaged, or fits neither the table's width nor the dictionary.
    """
    if not Path(path).is_file():
        use = f"another path; or, for a trained model, --model-overrides \"{{'{flag[2:].replace('-', '_')}': None}}\""
        raise ValueError(f"{flag}: needs a text file of word vectors; got {path!r}, which is no file. Use {use}.")
    vectors = read_word_vectors(Path(path), flag=flag, kinds="word vectors as text")
    read_width, unk = len(next(iter(vectors.values()))), dictionary.unk()
    if read_width != width:
        needs, use = f"vectors of width {width}, the table's", "the embedding dimension of the file"
        raise ValueError(f"{flag}: needs {needs}; got {read_width} in {path!r}. Use {use}.")
    known = {word: row for word, row in vectors.items() if dictionary.index(word) != unk or word == dictionary.unk_word}
    if not known:
        needs, got = "words of the dictionary", f"{path!r}, which has none of its {len(dictionary):,} words"
        raise ValueError(f"{flag}: needs {needs}; got {got}. Use vectors of the words in dict.txt, spelled alike.")
    return known
