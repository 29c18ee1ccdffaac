"""Score sentences by a language model.

Reads one sentence a line, split into words as the training text was, from files or from standard input; any of
fairseq's language models will do. Prints, separated by tabs, the natural logarithm of the sentence's probability, its
end included, the number of tokens predicted, and the sentence; at the end, on standard error, the perplexity of all.
Control characters of a sentence are escaped on a terminal, and kept in pipes and files.

Sentences are scored separately. With --stream they are one text, in which every token is predicted from all tokens
before it, as in fairseq-eval-lm with --task contiguous_lm; models trained on a stream score best so. --per-word writes
the log-probability of every token, for fairseq-tiedemb ngram --interpolate.

--cache adds a second perplexity to the summary: that of the model mixed with a cache of the last words.

--raw prints the target words' logits instead of log-probabilities. A logit costs one row of the table instead of the
whole vocabulary. The summary shows how far logits are from log-probabilities.
"""

import argparse
import fileinput
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._options import add_number, add_user_dir, at_least, import_user_dir, refuse_options
from fairseq_tiedemb.cli._output import check_output, note, written_aside
from fairseq_tiedemb.option_checks import flag_of

EXACT = True
RAW_SAMPLE = 1000  # where --raw is given without a number
THETA, LAMBDA = 0.3, 0.1  # of --cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="checkpoint of a language model")
    about = "text files; standard input if none"
    parser.add_argument("sentences", nargs="*", default=["-"], metavar="SENTENCES", help=about)
    parser.add_argument("--data", type=Path, required=True, help="folder with the dict.txt of the training")
    about = "score all sentences as one text, carrying the model's state across them. Default: separately"
    parser.add_argument("--stream", action="store_true", help=about)
    about = "write one line per token, including ends of sentences: natural logarithm of its probability, tab, the "
    about += "predicted token"
    parser.add_argument("--per-word", type=Path, metavar="OUT", help=about)
    add_number(parser, "--max-tokens", "tokens of a batch, padding included", 4000, kind=at_least(1, use=4000))
    cache = "with --stream, also report the perplexity with a continuous cache of N words (Grave et al. 2017)"
    add_number(parser, "--cache", cache, kind=at_least(1, most=10**9, use=500))
    theta = f"with --cache, factor of the products of features; 0 counts all its words alike (default: {THETA})"
    add_number(parser, "--cache-theta", theta, kind=at_least(0.0, most=10**6, use=THETA), metavar="T")
    weight = f"with --cache, weight of its probabilities in the mixture, below 1 (default: {LAMBDA})"
    add_number(parser, "--cache-lambda", weight, kind=at_least(0.0, most=0.999, use=LAMBDA), metavar="L")
    parser.add_argument("--raw", action="store_true", help="print logits without softmax, for --z-loss or nce models")
    sample = f"with --raw, number of tokens whose normaliser is computed (default: {RAW_SAMPLE})"
    add_number(parser, "--raw-sample", sample, kind=at_least(1, use=RAW_SAMPLE))
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> None:
    """Scores all sentences."""
    _check(arguments)
    import torch  # takes seconds, with fairseq: too slow for a help text

    from fairseq_tiedemb.analysis.continuous_cache import ContinuousCache
    from fairseq_tiedemb.analysis.normalisers import RawScorer
    from fairseq_tiedemb.analysis.sentence_scores import predicted_words
    from fairseq_tiedemb.ngram import write_word_scores

    model, task = _load(arguments)
    texts = _read(arguments.sentences)
    dictionary = task.source_dictionary
    sentences = [dictionary.encode_line(text, add_if_not_exist=False).long() for text in texts]
    predicted = predicted_words(task, torch.cat(sentences))
    if arguments.raw:
        model = RawScorer(model, len(predicted), arguments.raw_sample or RAW_SAMPLE)
    elif arguments.cache is not None:
        theta = THETA if arguments.cache_theta is None else arguments.cache_theta
        weight = LAMBDA if arguments.cache_lambda is None else arguments.cache_lambda
        model = ContinuousCache(model, size=arguments.cache, theta=theta, weight=weight)
    scores = _scores(arguments, model, task, sentences)
    totals = [of_tokens.sum().item() for of_tokens in scores]
    if arguments.per_word is not None:  # before a pipe may be closed
        words = map(dictionary.__getitem__, predicted.tolist())
        with written_aside(arguments.per_word) as aside, aside.open("w", encoding="utf-8") as file:
            write_word_scores(zip(words, torch.cat(scores).tolist(), strict=True), file)
    for text, value, of_tokens in zip(texts, totals, scores, strict=True):
        print(value, len(of_tokens), text, sep="\t")
    counted = f"{len(predicted):,} tokens ({int(predicted.eq(dictionary.unk()).sum()):,} unknown)"
    if arguments.raw:
        summary = f"mean raw score {sum(totals) / len(predicted):.4f}, which is no log-probability"
    else:
        summary = _of_probabilities(model, predicted, sum(totals))
    if arguments.raw or arguments.cache is not None:
        summary += f"; {model.summary()}"
    note(f"{len(texts):,} sentences, {counted}, {summary}")


def _check(arguments: argparse.Namespace) -> None:
    """Checks options and files before any of them is read."""
    texts = [Path(path) for path in arguments.sentences if path != "-"]
    for path in texts:
        if not path.is_file():
            raise ValueError(f"SENTENCES: need text files; got {path}, which is none. Use another, or - for stdin.")
    if arguments.raw:
        refuse_options(arguments, ["per_word", "cache"], needs="log-probabilities", got="--raw, whose scores are none")
    else:
        refuse_options(arguments, ["raw_sample"], needs="--raw, whose log Z it is of")
    if not arguments.stream:
        refuse_options(arguments, ["cache"], needs="--stream, of which it holds the last words")
    if arguments.cache is None:
        refuse_options(arguments, ["cache_theta", "cache_lambda"], needs="--cache")
    if arguments.per_word is not None:
        redirected = [Path("/dev/stdin")] if "-" in arguments.sentences else []  # a link to what `<` names
        inputs = [arguments.checkpoint, arguments.data / "dict.txt", *texts, *redirected]
        check_output(arguments.per_word, flag="--per-word", inputs=inputs)


def _load(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Returns the model, on the device that scores, and its task, after checking what the options need of them."""
    import torch

    from fairseq_tiedemb.analysis.sentence_scores import begins_with_bos
    from fairseq_tiedemb.loading import load_language_model

    import_user_dir(arguments.user_dir)
    model, task = load_language_model(arguments.checkpoint, arguments.data)
    if arguments.stream:  # could --task contiguous_lm continue the training?
        if not hasattr(model, "carried_state"):
            needs = "a model that carries its state over, a recurrent or feed-forward one of fairseq_tiedemb"
            raise ValueError(f"--stream: needs {needs}; got {type(model).__name__}. Leave it out.")
        for name, neutral in (("add_bos_token", False), ("output_dictionary_size", -1)):
            value = getattr(task.args, name, neutral)
            if value not in (None, neutral):
                needs = "a model that can be trained on one stream of text"
                raise ValueError(f"--stream: needs {needs}; got one of {flag_of(name)} {value}. Leave it out.")
    if arguments.raw and begins_with_bos(task):
        needs = "a model that does not predict <s>, whose log Z would count"
        got = f"{arguments.checkpoint}, trained with --add-bos-token"
        raise ValueError(f"--raw: needs {needs}; got {got}. Leave it out.")
    if torch.cuda.is_available() and not arguments.cpu:
        model.cuda()
    return model, task


def _read(paths: Sequence[str]) -> list[str]:
    """Returns the lines of all files, without byte-order marks at the files' beginnings."""
    if "-" in paths and isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="strict", newline=None)  # as files are read
    with fileinput.input(paths, encoding="utf-8") as lines:
        try:
            texts = [line.rstrip("\n").removeprefix("\ufeff" if lines.isfirstline() else "") for line in lines]
        except UnicodeDecodeError as error:
            got = f"{lines.filename()} ({error})"
            raise ValueError(f"SENTENCES: need text in UTF-8; got {got}. Use iconv -f LATIN1 -t UTF-8, say.") from None
    if not texts:
        read = ", ".join("standard input" if path == "-" else path for path in paths)
        raise ValueError(f"SENTENCES: need one line at least; got an empty text, {read}. Use a text with sentences.")
    return texts


def _scores(arguments: argparse.Namespace, model: Any, task: Any, sentences: Sequence[Any]) -> list[Any]:
    import torch

    from fairseq_tiedemb.analysis.sentence_scores import begins_with_bos, sentence_scores, stream_scores

    if arguments.stream:
        scores = stream_scores(model, task.source_dictionary, sentences, arguments.max_tokens)
    else:
        lengths, limit = list(map(len, sentences)), model.max_positions() - begins_with_bos(task)
        if max(lengths) > limit:
            place = f"line {lengths.index(max(lengths)) + 1}" + " of all files" * (len(arguments.sentences) > 1)
            needs = f"at most {limit} tokens each, their end included, as the model was trained with"
            raise ValueError(f"SENTENCES: need {needs}; got {max(lengths)} in {place}. Use shorter ones.")
        scores = sentence_scores(model, task, sentences, arguments.max_tokens)
    if torch.cat(scores).isnan().any():
        needs, got = "a model whose scores are numbers", f"nan from {arguments.checkpoint}"
        raise ValueError(f"CHECKPOINT: needs {needs}; got {got}. Use one from before the training diverged.")
    return scores


def _of_probabilities(model: Any, words: Any, total: float) -> str:
    """Returns the perplexity, and what the head tallies (``Head.tally``) beside."""
    from fairseq.utils import get_perplexity

    def perplexity(log_probability: float) -> str:
        return f"perplexity {get_perplexity(-log_probability / len(words), base=math.e):.2f}"

    words_1N = words.to(next(model.parameters()).device).unsqueeze(0)
    lengths = {"src_lengths": words.new_tensor([len(words)])}
    parts = [perplexity(total)]
    for name, value in (model.tally(words_1N, lengths) if hasattr(model, "tally") else {}).items():
        kind, _, label = name.partition(":")
        if kind == "share":
            parts.append(f"{100 * value.item() / len(words):.2f}% of the tokens {label}")
        else:
            tallied = total + value.item() if math.isfinite(total) else total
            parts.append(f"{perplexity(tallied)} {label.replace('_', ' ')}")
    return "; ".join(parts)
