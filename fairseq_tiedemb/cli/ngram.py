"""Perplexity of n-gram models on text, Kneser-Ney by default.

The command reads one sentence per line, as fairseq-preprocess does, and predicts every word and every line end from the
words before it in the line. The model is estimated from TRAIN, or read from an ARPA file. It may be mixed with other
models: ARPA files or, for neural models, the output of score --per-word.
"""

import argparse
import os
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_tiedemb.cli._interpolation import check_files, print_interpolation, read_models, words_of
from fairseq_tiedemb.cli._options import refuse_options
from fairseq_tiedemb.cli._output import check_output, note, written_aside
from fairseq_tiedemb.ngram import BOS, SMOOTHINGS, UNKNOWN, BackoffModel, SmoothedModel, Vocabulary
from fairseq_tiedemb.ngram.model import check_options
from fairseq_tiedemb.ngram.smoothing import BACK_OFF

# What is estimated where nothing is asked for: the options default to None, to be refused where they mean nothing.
DEFAULTS = {"order": 5, "smoothing": "modified-kneser-ney", "cutoff": None, "katz_k": 7}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("train", nargs="*", metavar="TRAIN", help="training text; several files are one text")
    about = "texts to score separately"
    parser.add_argument("--test", nargs="+", action="extend", default=[], metavar="FILE", help=about)
    parser.add_argument("--order", type=int, metavar="N", help="highest order of n-grams (default: 5)")
    parser.add_argument("--smoothing", choices=SMOOTHINGS, help="smoothing method (default: modified-kneser-ney)")
    about = "use lower orders only for n-grams that TRAIN lacks, instead of interpolating all orders. katz always "
    about += "backs off, jelinek-mercer never"
    parser.add_argument("--back-off", action="store_true", help=about)
    usual = [f"{name} {' '.join(map(str, each.cutoff))}" for name, each in SMOOTHINGS.items() if each.cutoff != (1,)]
    about = "minimum counts of n-grams of 1, 2, ... words, as SRILM's -gt1min, -gt2min, ...; the last N holds for "
    about += "longer n-grams too. Shorter n-grams get the probability of dropped ones. Below the highest order, "
    about += "kneser-ney and modified-kneser-ney compare the number of different preceding words. Default: "
    about += f"{', '.join(usual)}, SRILM's defaults, with which perplexities are published; 1 for other methods"
    parser.add_argument("--cutoff", nargs="+", action="extend", type=int, metavar="N", help=about)
    parser.add_argument("--katz-k", type=int, metavar="K", help="for katz: discount counts up to K (default: 7)")
    about = "for jelinek-mercer: one weight per count range of histories, or one per order (default: count)"
    parser.add_argument("--weights-by", choices=("count", "order"), help=about)
    about = "text for estimating the weights of jelinek-mercer and --interpolate; not in TRAIN"
    parser.add_argument("--held-out", metavar="FILE", help=about)
    about = f"fairseq's dictionary; other words become {UNKNOWN}, as in fairseq-train. Default: the words of TRAIN; "
    about += f"other words become {UNKNOWN} if TRAIN contains it, and are refused otherwise"
    parser.add_argument("--dict", metavar="DICT.TXT", help=about)
    parser.add_argument("--read-arpa", metavar="FILE", help="read the model, also of SRILM or KenLM, instead of TRAIN")
    about = "mix with another model: an ARPA file; or files of score --per-word, one for the held-out text and one for "
    about += "each test text, in this order. Repeat the option for further models. Weights are estimated on --held-out"
    parser.add_argument("--interpolate", nargs="+", action="append", default=[], metavar="FILE", help=about)
    parser.add_argument("--arpa", type=Path, metavar="OUT", help="write the model, for KenLM, SRILM and --read-arpa")


def run(arguments: argparse.Namespace) -> None:
    """Estimates or reads the model, and prints tables of perplexities."""
    begin = time.perf_counter()
    _check(arguments)
    texts = [*([] if arguments.held_out is None else [arguments.held_out]), *arguments.test]
    names = [" ".join(files) for files in arguments.interpolate]
    if arguments.train or arguments.read_arpa is not None:
        _run_with_model(arguments, texts, names)
    else:
        models = read_models(arguments.interpolate, texts, None)
        flags = ["--held-out", *["--test"] * len(arguments.test)]
        for flag, text, logs in zip(flags, texts, models[0], strict=True):
            if (count := np.count_nonzero(Vocabulary().read([text], flag=flag) != BOS)) != len(logs):
                needs, got = f"the text of {len(logs)} tokens that was scored", f"{text}, of {count}"
                raise ValueError(f"{flag}: needs {needs}; got {got}. Use the texts in the order of the scores.")
        print_interpolation(names, models, texts)
    print(f"{time.perf_counter() - begin:.1f} s")


def _run_with_model(arguments: argparse.Namespace, texts: Sequence[str], names: Sequence[str]) -> None:
    """Does all the work with an n-gram model; `names` are those of the models mixed with it."""
    model: BackoffModel
    train = None
    if arguments.read_arpa is not None:
        vocabulary, model = BackoffModel.read_arpa(arguments.read_arpa, flag="--read-arpa")
    else:
        vocabulary = Vocabulary() if arguments.dict is None else Vocabulary.from_dictionary(arguments.dict)
        spaced = next((word for word in vocabulary if word.split() != [word]), None)
        if arguments.arpa is not None and spaced is not None:
            raise ValueError(f"--arpa: needs words without spaces; got {spaced!r} of --dict. Use another dictionary.")
        train = vocabulary.read(arguments.train, flag="TRAIN")
        vocabulary.close()
    # All texts and other models are read before the model is estimated, so that an error in them shows at once.
    held_out = len(texts) - len(arguments.test)
    flags = ["--held-out"] * held_out + ["--test"] * len(arguments.test)
    tokens = [vocabulary.read([path], flag=flag) for path, flag in zip(texts, flags, strict=True)]
    others = read_models(arguments.interpolate, texts, [words_of(each, vocabulary) for each in tokens])
    if train is None:
        name, seen = f"ARPA file {arguments.read_arpa}, order {model.order}", ""
    else:
        weights = {"held_out": tokens[0] if held_out else None, "weights_by_count": arguments.weights_by != "order"}
        model = SmoothedModel(train, size=vocabulary.size, **weights, **_options(arguments))
        for order in model.fallbacks:
            values = [str(round(value, 4)) for value in model.discounts[order - 1]]
            taken = " ".join(values[:10]) + " ..." * (len(values) > 10)
            what = f"too few different counts to estimate the discounts of order {order}, as is usual of small texts"
            note(f"fairseq-tiedemb ngram: {what}: taking {taken}")
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


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(arguments, name) for name in DEFAULTS}
    form = BACK_OFF if arguments.back_off else None
    return DEFAULTS | {name: value for name, value in given.items() if value is not None} | {"form": form}


def _check(arguments: argparse.Namespace) -> None:
    """Checks the options before any file is read."""
    train, read_arpa, interpolate = arguments.train, arguments.read_arpa, arguments.interpolate
    smoothing = _options(arguments)["smoothing"]
    if train:
        refuse_options(arguments, ["read_arpa"], needs="no TRAIN", got=train[0])
        check_options(**_options(arguments))
    else:
        of_train = ["order", "smoothing", "back_off", "cutoff", "katz_k", "weights_by", "dict"]
        refuse_options(arguments, of_train, needs="TRAIN, to estimate a model from", got="none")
        if read_arpa is None and len(interpolate) < 2:
            use = "one, or --read-arpa, or --interpolate for each of two models"
            raise ValueError(f"TRAIN: needs text to count n-grams in; got none. Use {use}.")
        if read_arpa is None:
            refuse_options(arguments, ["arpa"], needs="a model of n-grams to write, of TRAIN", got="none")
    for name, method in (("katz_k", "katz"), ("weights_by", "jelinek-mercer")):
        if smoothing != method:
            refuse_options(arguments, [name], needs=f"--smoothing {method}", got=smoothing)
    # A text for weights, if there are any to estimate, which is no text of TRAIN.
    held_out = arguments.held_out
    weighted = "--interpolate" if interpolate else f"--smoothing {smoothing}"
    if not (interpolate or SMOOTHINGS[smoothing].needs_held_out):
        needs = "weights to estimate, of --smoothing jelinek-mercer or --interpolate"
        refuse_options(arguments, ["held_out"], needs=needs, got=weighted)
    elif held_out is None:
        needs = f"text that is not in TRAIN, for the weights of {weighted}"
        raise ValueError(f"--held-out: needs {needs}; got none. Use the validation text.")
    elif os.path.realpath(held_out) in map(os.path.realpath, train):
        raise ValueError(f"--held-out: needs text that is not in TRAIN; got {held_out}, which is. Use validation text.")
    if arguments.arpa is not None:
        one_each = [held_out, arguments.dict, read_arpa]
        inputs = [*train, *arguments.test, *one_each, *chain.from_iterable(interpolate)]
        check_output(arguments.arpa, flag="--arpa", inputs=[Path(path) for path in inputs if path is not None])
    check_files(interpolate, 1 + len(arguments.test))
