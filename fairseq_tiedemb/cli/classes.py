"""Put words into classes by their neighbours, for --class-file.

The classes maximise the likelihood of the bigram model p(c_t | c_t-1) p(w_t | c_t) on a binarized text, by exchange.
The output file has a line per word, as Brown clustering writes it: the class's path in a binary tree of the classes, as
bits, the word and its count. --output-layer classes and --output-layer tree --tree classes read it. Source: Brown et
al. 1992; Martin, Liermann & Ney 1998.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._options import add_number
from fairseq_tiedemb.cli._output import note, written_aside
from fairseq_tiedemb.cli._stream import add_text, read_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    about = "number of classes; an output layer is fastest near the square root of the vocabulary size"
    add_number(parser, "--classes", about, 100, metavar="C")
    add_number(parser, "--rounds", "maximum number of rounds; stops early when no word moves", 20)
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the text file")


def run(arguments: argparse.Namespace) -> None:
    """Writes the file, and describes it."""
    dictionary, stream = read_text(arguments)
    import numpy as np

    from fairseq_tiedemb.ngram.word_classes import codes_of_classes, exchange

    tokens = stream.tokens(0, len(stream)).numpy()
    counts = np.bincount(tokens, minlength=len(dictionary))
    words = np.flatnonzero(counts)
    if len(words) < 2:
        got = f"{len(words)} in {arguments.train_subset} of {arguments.data}"
        raise ValueError(f"--train-subset: needs two different words or more; got {got}. Use another text.")
    if not 1 < arguments.classes <= len(words):
        needs, got = f"2 to {len(words):,}, the words that the text has", arguments.classes
        raise ValueError(f"--classes: needs {needs}; got {got}. Use {max(2, round(len(words) ** 0.5))}, say.")

    def report(number: int, moved: int) -> None:
        note(f"round {number}: {moved:,} words moved")

    grouping = exchange(tokens, len(dictionary), arguments.classes, rounds=arguments.rounds, report=report)
    codes = codes_of_classes(grouping.bigrams)
    # Sorted by class in the tree's order, then by descending count.
    lines = sorted((codes[grouping.class_of[word]], -counts[word], word) for word in words.tolist())
    with written_aside(arguments.output) as aside, aside.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{bits}\t{dictionary[word]}\t{-minus}\n" for bits, minus, word in lines)
    sizes = np.unique(grouping.class_of[words], return_counts=True)[1]
    perplexity = np.exp(-grouping.log_likelihood / (len(tokens) - 1))
    print(
        f"{len(words):,} words in {len(sizes):,} classes of {sizes.min():,} to {sizes.max():,}; "
        f"perplexity of the class bigram model on this text: {perplexity:.2f}"
    )
