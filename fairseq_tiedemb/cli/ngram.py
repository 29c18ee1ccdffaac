"""Perplexity of an n-gram model, modified Kneser-Ney, on text.

The model is interpolated, with three discounts an order. The command reads the text that fairseq-preprocess
reads, a sentence a line, and predicts every word and every end of a line, each from the words before it in its line.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.ngram import BOS, FALLBACK_DISCOUNTS, MARKS, UNKNOWN, KneserNey, Vocabulary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the texts, the order, and what may be read and written besides."""
    parser.add_argument("train", nargs="+", metavar="TRAIN", help="text to count n-grams in, the files as one text")
    parser.add_argument("--test", nargs="+", default=[], metavar="FILE", help="texts to score, each by itself")
    parser.add_argument("--order", type=int, default=5, metavar="N", help="words of the longest n-grams (default: 5)")
    parser.add_argument(
        "--dict",
        metavar="DICT.TXT",
        help=f"fairseq's dictionary: every other word is {UNKNOWN}, as it is for fairseq-train. Default: the words of "
        f"TRAIN; others are {UNKNOWN} if TRAIN has it, and refused if not",
    )
    parser.add_argument("--arpa", type=Path, metavar="OUT", help="write the model, as KenLM and SRILM read it")


def run(arguments: argparse.Namespace) -> int:
    """Estimates the model and prints the table of perplexities."""
    begin = time.perf_counter()
    if arguments.arpa is not None:
        check_output(arguments.arpa, flag="--arpa")
    vocabulary = Vocabulary() if arguments.dict is None else Vocabulary.from_dictionary(arguments.dict)
    train = vocabulary.read(arguments.train, flag="TRAIN")
    vocabulary.close()
    # All texts are read before the model is made, so that a fault in the last one shows at once.
    tests = {path: vocabulary.read([path], flag="--test") for path in arguments.test}

    model = KneserNey(train, arguments.order, vocabulary.size)
    for order in model.fallbacks:
        print(
            f"fairseq-tiedemb ngram: too few different counts to estimate the discounts of order {order}: taking "
            f"{' '.join(map(str, FALLBACK_DISCOUNTS))}",
            file=sys.stderr,
        )
    ngrams = ", ".join(f"{len(keys):,}" for keys in model.keys)
    print(
        f"modified Kneser-Ney, order {model.order}: {np.count_nonzero(train != BOS):,} tokens, {vocabulary.size - 1:,} "
        f"types with </s>; n-grams by order: {ngrams}"
    )
    if tests:
        print(f"{'predicted':>12} {UNKNOWN:>10} {'perplexity':>11}  file")
    for path, tokens in tests.items():
        predicted = np.count_nonzero(tokens != BOS)
        unknown = np.count_nonzero(tokens == vocabulary[UNKNOWN]) if UNKNOWN in vocabulary else 0
        print(f"{predicted:>12,} {unknown:>10,} {model.perplexity(tokens):>11.2f}  {path}")
    if arguments.arpa is not None:
        with written_aside(arguments.arpa) as aside, aside.open("w", encoding="utf-8") as file:
            model.write_arpa([*MARKS, *vocabulary], file)
    print(f"{time.perf_counter() - begin:.1f} s")
    return 0
