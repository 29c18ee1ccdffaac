"""Give a trained model another dictionary, to train it further.

Words of both dictionaries keep their rows, wherever they stand. Rows of new words are drawn as those of a new model, or
are their --vectors, or the mean of the rows of their --pieces. Output biases, the bands of an adaptive softmax and a
method's parameters follow; an output layer made from the words, such as classes, is refused.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._starts import add_start, read_start, write_start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the checkpoints, the dictionary, and how new words start."""
    add_start(parser)
    parser.add_argument(
        "--dictionary",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="the new dict.txt, of fairseq-preprocess; for translation one of both languages, or source and target",
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--vectors", type=Path, metavar="FILE", help="word vectors as text, for the input rows of new words"
    )
    start.add_argument(
        "--pieces",
        type=Path,
        metavar="FILE",
        help="lines `word piece piece ...`, the pieces that the training cut new words into",
    )


def run(arguments: argparse.Namespace) -> None:
    """Writes the extended model."""
    files = [path for path in (*arguments.dictionary, arguments.vectors, arguments.pieces) if path is not None]
    trained = read_start(arguments, *files)
    from fairseq_tiedemb.checkpoints.word_vectors import read_word_vectors
    from fairseq_tiedemb.starts.extend import NewRows, extend, read_pieces

    rows = NewRows()
    if arguments.vectors is not None:
        if not arguments.vectors.is_file():
            raise ValueError(f"--vectors: needs a file; got {arguments.vectors}, which is none. Use another path.")
        rows = NewRows(vectors=read_word_vectors(arguments.vectors, flag="--vectors", kinds="word vectors as text"))
    if arguments.pieces is not None:
        rows = NewRows(pieces=read_pieces(arguments.pieces))
    state, about = extend(trained, arguments.dictionary, rows)
    write_start(arguments, state, about)
