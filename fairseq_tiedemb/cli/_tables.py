"""The command-line arguments that name tables of word vectors."""

import argparse
import os
from pathlib import Path
from typing import Any

from fairseq_tiedemb.checkpoints.table_names import ROLES
from fairseq_tiedemb.cli._options import add_user_dir, import_user_dir

# Patterns of files that are read beside a checkpoint, or in a folder of transformers.
BESIDE = ("dict*.txt", "vocab.*", "*.json", "*.safetensors")


def add_tables(parser: argparse.ArgumentParser, *, nargs: str | int = "+") -> None:
    """Adds TABLE, and the options that choose a file's table and its words."""
    about = "a checkpoint of fairseq's or ours, a folder of Hugging Face's transformers or its safetensors file, or "
    about += "vectors as text (word2vec's, GloVe's); PATH:ROLE and PATH:TENSOR choose one of its tables; a model alone "
    about += "stands for all tables of its decoder"
    parser.add_argument("tables", nargs=nargs, metavar="TABLE", help=about)
    about = "role of every TABLE given without one: in, out or tied in the decoder or language model; sum is in + "
    about += "out; source is the encoder's input"
    parser.add_argument("--role", choices=tuple(ROLES), help=about)
    parser.add_argument("--tensor", metavar="NAME", help="name of a matrix, for every TABLE given without one")
    about = "words of the rows: dict.txt of fairseq, or tokenizer.json, vocab.json or vocab.txt; once for all TABLEs, "
    about += "or once for each TABLE, in order; not for text. Default: dict.txt beside the checkpoint, or in the data "
    about += "folder of its training; tokenizer.json, vocab.json or vocab.txt in the folder, of which words alone count"
    parser.add_argument("--dict", "--dictionary", action="append", default=[], type=Path, metavar="FILE", help=about)
    about = "prefix of words in the dictionary, such as \u2581 of SentencePiece and \u0120 of GPT-2; entries without "
    about += "it are left out"
    parser.add_argument("--word-mark", default="", metavar="MARK", help=about)
    add_user_dir(parser)


def read_tables(arguments: argparse.Namespace) -> list[Any]:
    """Returns the tables (``WordTable``) in their order."""
    import_user_dir(arguments.user_dir)
    return [table for source in _sources(arguments) for table in source.read()]


def files_of_tables(arguments: argparse.Namespace) -> list[Path]:
    """Returns what `read_tables` may read, with the files beside checkpoints; no output may replace them."""
    paths = [source.path for source in _sources(arguments)]
    folders = [path if os.path.isdir(path) else path.parent for path in paths]
    beside = [file for folder in folders for pattern in BESIDE for file in folder.glob(pattern)]
    return [*paths, *arguments.dict, *beside]


def _sources(arguments: argparse.Namespace) -> list[Any]:
    from fairseq_tiedemb.vectors.sources import parse_source  # imports torch, which takes a second

    given, count = arguments.dict, len(arguments.tables)
    for path in given:
        if not path.exists():  # also beside a text, which needs none
            raise ValueError(f"--dict: needs a text file; got {path} (No such file or directory). Use another path.")
    if len(given) not in (0, 1, count):
        raise ValueError(f"--dict: needs one, or one for each TABLE; got {len(given)} for {count}. Use {count}.")
    dictionaries = given if len(given) == count else [*given, None][:1] * count
    options = {"role": arguments.role, "tensor": arguments.tensor, "word_mark": arguments.word_mark}
    return [
        parse_source(text, dictionary=dictionary, **options)
        for text, dictionary in zip(arguments.tables, dictionaries, strict=True)
    ]
