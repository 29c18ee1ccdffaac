"""Give a trained model another dictionary, to train it further.

Words of both dictionaries keep their rows, wherever they stand. Rows of new words are random, as in a new model, or
their --vectors, or the mean of the rows of their --pieces. Output biases, the bands of an adaptive softmax and a
method's parameters are extended, too. An output layer made from the words, such as classes, is refused.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._starts import add_start, write_start


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_start(parser)
    about = "the new dict.txt, of fairseq-preprocess; for translation one of both languages, or source and target"
    parser.add_argument(
        "--dictionary", type=Path, nargs="+", action="extend", required=True, metavar="FILE", help=about
    )
    start = parser.add_mutually_exclusive_group()
    about = "word vectors as text, for the input rows of new words"
    start.add_argument("--vectors", type=Path, metavar="FILE", help=about)
    about = "lines `word piece piece ...`, the pieces that the training cut new words into"
    start.add_argument("--pieces", type=Path, metavar="FILE", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Writes the extended model."""
    from fairseq_tiedemb.starts.extend import extend

    files = {"--vectors": arguments.vectors, "--pieces": arguments.pieces}
    given = [(flag, path) for flag, path in files.items() if path is not None]
    inputs = [*arguments.dictionary, *(path for _, path in given)]
    write_start(arguments, lambda trained: extend(trained, arguments.dictionary, *given), *inputs)
