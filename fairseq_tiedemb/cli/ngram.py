"""Perplexity of n-gram models on text, Kneser-Ney by default.

The command reads a sentence a line, as fairseq-preprocess does, and predicts every word and every end of a line, each
from the words before it in its line. The model is estimated from TRAIN, or read from an ARPA file. It may
be mixed with others, whose probabilities come from ARPA files or, for neural ones, from score --per-word.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairseq_tiedemb.cli._interpolation import (
    check_files,
    print_interpolation,
    read_models,
    words_of,
)
from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.ngram import BOS, SMOOTHINGS, UNKNOWN, BackoffModel, SmoothedModel, Vocabulary
from fairseq_tiedemb.ngram.model import check_options
from fairseq_tiedemb.ngram.smoothing import BACK_OFF

# What is taken where nothing is asked for. None in the arguments tells that it was not, since not all go together.
ORDER, SMOOTHING, KATZ_K = 5, "modified-kneser-ney", 7


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the texts, the order, the method, and what may be read and written besides."""
    parser.add_argument("train", nargs="*", metavar="TRAIN", help="text to count n-grams in, the files as one text")
    parser.add_argument("--test", nargs="+", default=[], metavar="FILE", help="texts to score, each by itself")
    parser.add_argument("--order", type=int, metavar="N", help="words of the longest n-grams (default: 5)")
    parser.add_argument(
        "--smoothing",
        choices=SMOOTHINGS,
        help="how probability comes to n-grams that TRAIN lacks (default: modified-kneser-ney)",
    )
    parser.add_argument(
        "--back-off",
        action="store_true",
        help="shorter n-grams are asked only where the longer one was not seen, and not mixed with it. katz has no "
        "other form, and jelinek-mercer has not this one",
    )
    usual = [f"{name} {' '.join(map(str, each.cutoff))}" for name, each in SMOOTHINGS.items() if each.cutoff != (1,)]
    parser.add_argument(
        "--cutoff",
        nargs="+",
        type=int,
        metavar="N",
        help="leave out n-grams of 1, 2, ... words that come less than N times, as SRILM's -gt1min, -gt2min, ... do: "
        "their probability goes to shorter ones; the last N holds for longer n-grams too. In kneser-ney and "
        "modified-kneser-ney it is the number of different words before them that counts, but for the longest. "
        f"Default: {', '.join(usual)}, SRILM's, with which its perplexities were published: a long n-gram that came "
        "once says too much where nothing is interpolated; all others 1, nothing left out, as Kneser-Ney's were",
    )
    parser.add_argument("--katz-k", type=int, metavar="K", help="katz discounts counts of at most K (default: 7)")
    parser.add_argument(
        "--weights-by",
        choices=("count", "order"),
        help="jelinek-mercer has a weight for all histories of about one count, or one an order (default: count)",
    )
    parser.add_argument(
        "--held-out",
        metavar="FILE",
        help="text on which weights are estimated, of jelinek-mercer and --interpolate; not TRAIN, nor what is tested",
    )
    parser.add_argument(
        "--dict",
        metavar="DICT.TXT",
        help=f"fairseq's dictionary: every other word is {UNKNOWN}, as it is for fairseq-train. Default: the words of "
        f"TRAIN; others are {UNKNOWN} if TRAIN has it, and refused if not",
    )
    parser.add_argument("--read-arpa", metavar="FILE", help="read the model, of SRILM or KenLM too; needs no TRAIN")
    parser.add_argument(
        "--interpolate",
        nargs="+",
        action="append",
        default=[],
        metavar="FILE",
        help="mix with another model: an ARPA file; or files of score --per-word, one for the held-out text and one "
        "for each test text, in this order. Once for each model. The weights are the best ones on --held-out",
    )
    parser.add_argument("--arpa", type=Path, metavar="OUT", help="write the model, as KenLM and SRILM read it")


def run(arguments: argparse.Namespace) -> int:
    """Estimates or reads the model and prints the tables of perplexities."""
    begin = time.perf_counter()
    _check(arguments)
    texts = [*([] if arguments.held_out is None else [arguments.held_out]), *arguments.test]
    names = [" ".join(files) for files in arguments.interpolate]
    if arguments.train or arguments.read_arpa is not None:
        _run_with_model(arguments, texts, names)
    else:
        print_interpolation(names, read_models(arguments.interpolate, texts, None), texts)
    print(f"{time.perf_counter() - begin:.1f} s")
    return 0


def _run_with_model(arguments: argparse.Namespace, texts: Sequence[str], names: Sequence[str]) -> None:
    """All that is done with a model of n-grams; `names` are those of the models that it is mixed with."""
    model: BackoffModel
    train = None
    if arguments.read_arpa is not None:
        vocabulary, model = BackoffModel.read_arpa(arguments.read_arpa, flag="--read-arpa")
    else:
        vocabulary = Vocabulary() if arguments.dict is None else Vocabulary.from_dictionary(arguments.dict)
        train = vocabulary.read(arguments.train, flag="TRAIN")
        vocabulary.close()
    # All texts and other models are read before the model is made, so that a fault in the last one shows at once.
    held_out = len(texts) - len(arguments.test)
    flags = ["--held-out"] * held_out + ["--test"] * len(arguments.test)
    tokens = [vocabulary.read([path], flag=flag) for path, flag in zip(texts, flags, strict=True)]
    others = read_models(arguments.interpolate, texts, [words_of(each, vocabulary) for each in tokens])
    if train is None:
        name, seen = f"ARPA file {arguments.read_arpa}, order {model.order}", ""
    else:
        model = _estimated(arguments, train, vocabulary.size, tokens[0] if held_out else None)
        name, seen = f"{model.title}, order {model.order}", f"{np.count_nonzero(train != BOS):,} tokens, "
    ngrams = ", ".join(f"{len(keys):,}" for keys in model.keys)
    print(f"{name}: {seen}{vocabulary.size - 1:,} types with </s>; n-grams by order: {ngrams}")
    logs = [model.log_probabilities(each) for each in tokens]
    if arguments.test:
        print(f"{'predicted':>12} {UNKNOWN:>10} {'perplexity':>11}  file")
    for path, indices, each in list(zip(texts, tokens, logs, strict=True))[held_out:]:
        unknown = np.count_nonzero(indices == vocabulary[UNKNOWN]) if UNKNOWN in vocabulary else 0
        print(f"{len(each):>12,} {unknown:>10,} {np.exp(-each.mean()):>11.2f}  {path}")
    if others:
        print_interpolation([name, *names], [logs, *others], texts)
    if arguments.arpa is not None:
        with written_aside(arguments.arpa) as aside, aside.open("w", encoding="utf-8") as file:
            model.write_arpa(vocabulary.symbols(), file)


def _estimated(
    arguments: argparse.Namespace, train: NDArray[np.int32], size: int, held_out: NDArray[np.int32] | None
) -> SmoothedModel:
    model = SmoothedModel(
        train,
        arguments.order or ORDER,
        size,
        smoothing=arguments.smoothing or SMOOTHING,
        form=BACK_OFF if arguments.back_off else None,
        cutoff=arguments.cutoff,
        katz_k=arguments.katz_k or KATZ_K,
        held_out=held_out,
        weights_by_count=arguments.weights_by != "order",
    )
    for order in model.fallbacks:
        print(
            f"fairseq-tiedemb ngram: too few different counts to estimate the discounts of order {order}, as "
            f"is usual of small texts: taking {' '.join(str(round(value, 4)) for value in model.discounts[order - 1])}",
            file=sys.stderr,
        )
    return model


def _check(arguments: argparse.Namespace) -> None:
    """Checks what was asked for, before anything is read.

    Raises:
        ValueError: for options that do not go together, or without what they need.
    """
    smoothing = arguments.smoothing or SMOOTHING
    if not arguments.train and arguments.read_arpa is None and len(arguments.interpolate) < 2:
        raise ValueError(
            "TRAIN: needs text to count n-grams in; got none. Use one, or --read-arpa, or --interpolate for each of "
            "two models."
        )
    if arguments.train and arguments.read_arpa is not None:
        raise ValueError(f"--read-arpa: needs no TRAIN; got {arguments.train[0]}. Use one or the other.")
    for name in () if arguments.train else ("order", "smoothing", "back_off", "cutoff", "katz_k", "weights_by", "dict"):
        if getattr(arguments, name) not in (None, False):
            raise ValueError(
                f"--{name.replace('_', '-')}: needs TRAIN, to estimate a model from; got none. Leave it out."
            )
    for name, method in (("katz_k", "katz"), ("weights_by", "jelinek-mercer")):
        if getattr(arguments, name) is not None and smoothing != method:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag}: needs --smoothing {method}; got {smoothing}. Leave it out, or use that.")
    if arguments.train:
        check_options(
            smoothing,
            order=ORDER if arguments.order is None else arguments.order,
            form=BACK_OFF if arguments.back_off else None,
            cutoff=arguments.cutoff,
            katz_k=KATZ_K if arguments.katz_k is None else arguments.katz_k,
        )
    weighted = "--interpolate" if arguments.interpolate else f"--smoothing {smoothing}"
    needs_held_out = bool(arguments.interpolate) or SMOOTHINGS[smoothing].needs_held_out
    if needs_held_out and arguments.held_out is None:
        raise ValueError(
            f"--held-out: needs text that is not in TRAIN, for the weights of {weighted}; got none. Use the validation "
            "text."
        )
    if arguments.held_out is not None and not needs_held_out:
        raise ValueError(
            f"--held-out: needs weights to estimate, of --smoothing jelinek-mercer or --interpolate; got {weighted}. "
            "Use --test, to score the text."
        )
    if arguments.held_out is not None and os.path.realpath(arguments.held_out) in map(
        os.path.realpath, arguments.train
    ):
        raise ValueError(
            f"--held-out: needs text that is not in TRAIN; got {arguments.held_out}, which is. Use the validation text."
        )
    if arguments.arpa is not None:
        if not arguments.train and arguments.read_arpa is None:
            raise ValueError(f"--arpa: needs a model of n-grams to write; got none for {arguments.arpa}. Use TRAIN.")
        one_each = [arguments.held_out, arguments.dict, arguments.read_arpa]
        inputs = [*arguments.train, *arguments.test, *one_each, *chain.from_iterable(arguments.interpolate)]
        check_output(arguments.arpa, flag="--arpa", inputs=[Path(path) for path in inputs if path is not None])
    check_files(arguments.interpolate, 1 + len(arguments.test))
