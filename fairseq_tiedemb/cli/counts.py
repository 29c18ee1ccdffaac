"""Make word vectors by counting the neighbours of words.

A baseline for word2vec, without training. Words and windows are those of --task word_pairs, but nothing is random: no
word is subsampled, and a pair has the weight of its expected count in skip-gram. The vectors are the truncated SVD of
the positive pointwise mutual information, in word2vec's text format. Source: Levy, Goldberg & Dagan 2015.
"""

import argparse
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._options import add_number, at_least
from fairseq_tiedemb.cli._output import written_aside
from fairseq_tiedemb.cli._stream import add_text, read_text

# With larger exponents, powers of counts and of singular values could be too large for float32.
POWER = at_least(0.0, most=4, use=0.5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    widest = 100_000_000  # so that counts of pairs times windows fit into 64 bits
    add_number(parser, "--window", "largest distance between two words", 5, kind=at_least(1, most=widest))
    add_number(parser, "--min-count", "leave out words with a lower count", 5)
    add_number(parser, "--dim", "width of the vectors", 100)
    smoothing = "exponent of the contexts' frequencies; 1 for no smoothing"
    add_number(parser, "--smoothing", smoothing, 0.75, kind=POWER, metavar="POWER")
    shift = "subtract log K from the mutual information, then set negative values to 0"
    add_number(parser, "--shift", shift, 1.0, kind=at_least(1.0, use=1), metavar="K")
    add_number(parser, "--power", "exponent of the singular values in the vectors", 0.5, kind=POWER, metavar="P")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the text file")


def run(arguments: argparse.Namespace) -> None:
    """Writes the file, and describes it."""
    dictionary, stream = read_text(arguments)
    import numpy as np

    from fairseq_tiedemb.vectors.counts import positive_mutual_information, singular_vectors, window_counts
    from fairseq_tiedemb.vectors.word_table import WordTable, write_vectors

    words = np.flatnonzero(stream.word_counts() >= arguments.min_count)
    if len(words) <= arguments.dim:
        needs = f"fewer than the words that come {arguments.min_count} times or more"
        got = f"{arguments.dim} for {len(words)}"
        raise ValueError(f"--dim: needs {needs}; got {got}. Use a smaller one, or a smaller --min-count.")
    counts = window_counts(numbered(stream, words, len(dictionary)), len(words), arguments.window)
    cells = counts.nnz
    information = positive_mutual_information(counts, smoothing=arguments.smoothing, shift=arguments.shift)
    del counts
    if information.nnz == 0:
        got = f"{arguments.shift:g}, which leaves none of {cells:,}"
        raise ValueError(f"--shift: needs a number below which pairs of words still count; got {got}. Use 1, say.")
    rows = singular_vectors(information, arguments.dim, power=arguments.power).astype(np.float32)
    table = WordTable(str(arguments.output), [dictionary[word] for word in words], rows)
    with written_aside(arguments.output) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        write_vectors(table, file)
    print(f"{table.describe()}; of {cells:,} pairs of words that stand near each other {information.nnz:,} count")


def numbered(stream: Any, words: Any, size: int) -> Iterator[tuple[Any, Any]]:
    """Yields parts of a text, of whole sentences: the words in `words`, by their place there, and sentence numbers."""
    import numpy as np

    from fairseq_tiedemb.tasks._pairs import whole_sentences, words_and_bounds
    from fairseq_tiedemb.tasks._streams import BLOCK

    place = np.full(size, -1, np.int32)
    place[words] = np.arange(len(words), dtype=np.int32)
    bounds = whole_sentences(stream.ends, BLOCK)
    for start, stop in pairwise(bounds):
        tokens, sentences = words_and_bounds(stream, start, stop)
        places, sizes = place[tokens], np.diff(sentences)
        yield places[places >= 0], np.arange(len(sizes)).repeat(sizes)[places >= 0]
