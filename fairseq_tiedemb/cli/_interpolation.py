"""Reads the models of `ngram --interpolate` and prints the result of the mixture."""

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairseq_tiedemb import ngram
from fairseq_tiedemb.ngram.fields import Reals


def check_files(models: Sequence[Sequence[str]], texts: int) -> None:
    """Checks the number of files per model, of the first one's kind, for `texts` texts including the held-out one."""
    for files in models:
        for path in files:
            if os.path.exists(path) and not os.path.isfile(path):
                raise ValueError(f"--interpolate: needs a file, read twice; got {path}, which is none. Use one.")
        scored = ngram.is_word_scores(files[0], flag="--interpolate")
        if len(files) != (texts if scored else 1):
            of_texts = f"{texts} files of score --per-word, for --held-out and each --test text in this order"
            got = f"{len(files)} of {'scores' if scored else 'another form'}, {' '.join(files)}"
            needs = f"{of_texts}, or one ARPA file"
            raise ValueError(f"--interpolate: needs {needs}; got {got}. Use --interpolate once for each model.")


def words_of(tokens: NDArray[np.int32], vocabulary: ngram.Vocabulary) -> list[str]:
    """Returns the predicted tokens as words: all tokens but <s>."""
    symbols = vocabulary.symbols()
    return [symbols[index] for index in tokens[tokens != ngram.BOS].tolist()]


def read_models(
    models: Sequence[Sequence[str]], texts: Sequence[str], words: Sequence[Sequence[str]] | None
) -> list[list[Reals]]:
    """Returns the natural log-probabilities of the texts' tokens, by model and text.

    A model is its files, see `check_files`; `words` are the texts' tokens, from `words_of`, or the first model's.
    """
    by_model = []
    for files in models:
        if ngram.is_word_scores(files[0], flag="--interpolate"):
            scores = [ngram.read_word_scores(path, flag="--interpolate") for path in files]
        else:
            vocabulary, model = ngram.BackoffModel.read_arpa(files[0], flag="--interpolate")
            tokens = (vocabulary.read([path], flag="--interpolate") for path in texts)
            scores = [ngram.WordScores(words_of(each, vocabulary), model.log_probabilities(each)) for each in tokens]
        words = words or [each.tokens for each in scores]
        for text, expected, each in zip(texts, words, scores, strict=True):
            _check_same_tokens(expected, each.tokens, text=text, name=" ".join(files))
        by_model.append([each.logs for each in scores])
    return by_model


def _check_same_tokens(expected: Sequence[str], found: Sequence[str], *, text: str, name: str) -> None:
    for number, (one, other) in enumerate(zip(expected, found, strict=False), start=1):
        if one != other:
            got = f"{one!r} and, from {name}, {other!r} as token number {number} of {text}"
            use = "the files in the order of --held-out and --test, and --dict with the dict.txt of the other model"
            raise ValueError(f"--interpolate: needs models of the same words; got {got}. Use {use}.")
    if len(found) != len(expected):
        needs, got = f"a probability for each of the {len(expected)} tokens of {text}", f"{len(found)} from {name}"
        raise ValueError(f"--interpolate: needs {needs}; got {got}. Use score --per-word on the same text.")


def print_interpolation(names: Sequence[str], logs: Sequence[Sequence[Reals]], texts: Sequence[str]) -> None:
    """Estimates the weights on the first text, and prints perplexities of the models and their mixture on all texts.

    `logs` has natural log-probabilities of the texts' tokens, by model and text.
    """
    stacked = [np.stack(of_models) for of_models in zip(*logs, strict=True)]
    weights, trace = ngram.estimate_mixture(stacked[0])
    print(f"\ninterpolated, weights by {len(trace)} rounds of EM on {texts[0]}; perplexity of {', '.join(texts)}")
    for weight, name, of_texts in zip(weights, names, logs, strict=True):
        print(f"{weight:>10.4f}" + "".join(f" {np.exp(-each.mean()):>11.2f}" for each in of_texts) + f"  {name}")
    mixed = "".join(f" {np.exp(-ngram.mixture(each, weights).mean()):>11.2f}" for each in stacked)
    print(f"{'':>10}{mixed}  interpolated")
