"""Make word vectors by counting the neighbours of words.

Nothing is trained. Of a binarised text, with windows and words as --task word_pairs has them, but without chance: no
word is thinned out, and a pair counts as much as skip-gram has to expect of it. The vectors are the truncated SVD of
the positive pointwise mutual information, in word2vec's text format: what word2vec is to be measured against. Source:
Levy, Goldberg & Dagan 2015.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.cli._stream import files_of, read_dictionary, read_stream
from fairseq_tiedemb.cli._tables import positive

WIDEST = 100_000_000  # so that counts of pairs times windows fit into 64 bits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the text, the options of the method, and the output."""
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of fairseq-preprocess --only-source")
    parser.add_argument("--train-subset", default="train", metavar="NAME", help="the text (default: train)")
    parser.add_argument(
        "--window", type=int, default=5, metavar="N", help="largest distance between two words (default: 5)"
    )
    parser.add_argument(
        "--min-count", type=int, default=5, metavar="N", help="leave out words with a lower count (default: 5)"
    )
    parser.add_argument("--dim", type=int, default=100, metavar="N", help="width of the vectors (default: 100)")
    parser.add_argument(
        "--smoothing",
        type=float,
        default=0.75,
        metavar="POWER",
        help="exponent of the contexts' frequencies; 1 for no smoothing (default: 0.75)",
    )
    parser.add_argument(
        "--shift", type=float, default=1.0, metavar="K", help="subtract log K before cutting at 0 (default: 1)"
    )
    parser.add_argument(
        "--power", type=float, default=0.5, metavar="P", help="exponent of singular values (default: 0.5)"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the text file")


def run(arguments: argparse.Namespace) -> int:
    """Writes the file, and describes it."""
    for flag in ("window", "min_count", "dim"):
        positive(f"--{flag.replace('_', '-')}", getattr(arguments, flag))
    if arguments.window > WIDEST:
        raise ValueError(f"--window: needs {WIDEST:,} at most; got {arguments.window:,}. Use 5, say.")
    for flag, value, lowest in (
        ("--smoothing", arguments.smoothing, 0.0),
        ("--shift", arguments.shift, 1.0),
        ("--power", arguments.power, 0.0),
    ):
        if not (math.isfinite(value) and value >= lowest):
            raise ValueError(f"{flag}: needs a number from {lowest:g} on; got {value}. Use 1, say.")
    inputs = files_of(arguments.data, arguments.train_subset)
    check_output(arguments.output, flag="--output", inputs=inputs)
    import numpy as np

    from fairseq_tiedemb.tasks._pairs import count_words
    from fairseq_tiedemb.vectors.counts import positive_mutual_information, singular_vectors, window_counts
    from fairseq_tiedemb.vectors.text_file import write_vectors
    from fairseq_tiedemb.vectors.word_table import WordTable

    dictionary = read_dictionary(arguments.data)
    stream = read_stream(arguments.data, arguments.train_subset, dictionary)
    often = count_words(stream, len(dictionary), dictionary.nspecial)
    words = np.flatnonzero(often >= arguments.min_count)
    if len(words) <= arguments.dim:
        raise ValueError(
            f"--dim: needs fewer than the words that come {arguments.min_count} times or more; got {arguments.dim} for "
            f"{len(words)}. Use a smaller one, or a smaller --min-count."
        )
    counts = window_counts(numbered(stream, words, len(dictionary)), len(words), arguments.window)
    cells = counts.nnz
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        information = positive_mutual_information(counts, smoothing=arguments.smoothing, shift=arguments.shift)
    del counts
    if not np.isfinite(information.data).all():
        raise ValueError(
            f"--smoothing: needs a power of counts that is a finite number; got {arguments.smoothing:g}, whose are "
            "not. Use 0.75, say."
        )
    if information.nnz == 0:
        raise ValueError(
            f"--shift: needs a number below which pairs of words still count; got {arguments.shift:g}, which leaves "
            f"none of {cells:,}. Use 1, say."
        )
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        rows = singular_vectors(information, arguments.dim, power=arguments.power).astype(np.float32)
    if not (np.isfinite(rows).all() and rows.any()):
        raise ValueError(
            f"--power: needs a power of singular values that float32 can hold; got {arguments.power:g}, which makes "
            f"{'nothing but 0' if np.isfinite(rows).all() else 'numbers that are not finite'}. Use 0.5, say."
        )
    table = WordTable(str(arguments.output), [dictionary[word] for word in words], rows)
    with written_aside(arguments.output) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        write_vectors(table, file)
    print(f"{table.describe()}; of {cells:,} pairs of words that stand near each other {information.nnz:,} count")
    return 0


def numbered(stream: Any, words: Any, size: int) -> Iterator[tuple[Any, Any]]:
    """Yields parts of a text, of whole sentences: the words in `words`, by their place there, and sentence numbers."""
    import numpy as np

    from fairseq_tiedemb.tasks._pairs import BLOCK, whole_sentences, words_and_sentences

    place = np.full(size, -1, np.int32)
    place[words] = np.arange(len(words), dtype=np.int32)
    bounds = whole_sentences(stream.ends, BLOCK)
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        tokens, sentences = words_and_sentences(stream, start, stop)
        found = place[tokens]
        yield found[found >= 0], sentences[found >= 0]
