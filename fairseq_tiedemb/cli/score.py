"""Score sentences by a language model.

Reads one sentence a line, split into words as the training text was, from files or from standard input; any of
fairseq's language models will do. Prints, separated by tabs, the natural logarithm of the sentence's probability, its
end included, the number of tokens predicted, and the sentence; at the end, on standard error, the perplexity of all.
Where the output is no terminal, the sentence is there as it came; a terminal gets its control characters escaped.

Sentences are scored separately. With --stream they are one text, in which every token is predicted from all tokens
before it, as in fairseq-eval-lm with --task contiguous_lm; models trained on a stream need this. --per-word writes the
log-probability of every token, for fairseq-tiedemb ngram --interpolate.

--raw prints the target words' logits instead of log-probabilities, at the cost of one word instead of the whole
vocabulary. Logits are no probabilities; the summary shows how far they are from log-probabilities.
"""

import argparse
import fileinput
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._output import check_output, written_aside
from fairseq_tiedemb.cli._user_dir import add_user_dir, import_user_dir

EXACT = True
# What is taken where nothing is asked for. None in the arguments tells that it was not.
RAW_SAMPLE = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("checkpoint", type=Path, help="checkpoint of a language model")
    parser.add_argument("sentences", nargs="*", default=["-"], help="text files; standard input if none")
    parser.add_argument("--data", type=Path, required=True, help="folder with the dict.txt of the training")
    parser.add_argument(
        "--stream",
        action="store_true",
        help="score all sentences as one text, carrying the model's state across them. Default: separately",
    )
    parser.add_argument(
        "--per-word",
        type=Path,
        metavar="OUT",
        help="write one line per token, including ends of sentences: natural logarithm of its probability, tab, the "
        "predicted token",
    )
    parser.add_argument("--max-tokens", type=int, default=4000, help="tokens of a batch, padding included")
    parser.add_argument(
        "--raw",
        action="store_true",
        help="print logits without softmax, for a self-normalised model",
    )
    parser.add_argument(
        "--raw-sample",
        type=int,
        metavar="N",
        help=f"tokens whose log Z is computed, with --raw (default: {RAW_SAMPLE})",
    )
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    add_user_dir(parser)


def run(arguments: argparse.Namespace) -> int:
    """Scores all sentences.

    Raises:
        ValueError: if a file is missing, the checkpoint is not a language model or lacks what an option needs, or a
            sentence is too long.
    """
    _check(arguments)
    import torch  # takes seconds, with fairseq: too slow for a help text
    from fairseq.utils import get_perplexity

    from fairseq_tiedemb.analysis.normalisers import RawScorer
    from fairseq_tiedemb.analysis.sentence_scores import (
        begins_with_bos,
        predicted_words,
        sentence_scores,
        stream_scores,
    )
    from fairseq_tiedemb.ngram import write_word_scores

    model, task = _load(arguments)
    texts = _read(arguments.sentences)
    dictionary = task.source_dictionary
    sentences = [dictionary.encode_line(text, add_if_not_exist=False).long() for text in texts]
    predicted = [predicted_words(task, sentence) for sentence in sentences]
    tokens = sum(len(sentence) for sentence in sentences)
    if arguments.raw:
        model = RawScorer(model, tokens, arguments.raw_sample or RAW_SAMPLE)
    if arguments.stream:
        scores = stream_scores(model, dictionary, sentences, arguments.max_tokens)
    else:
        _check_lengths(sentences, model.max_positions() - begins_with_bos(task))
        scores = sentence_scores(model, task, sentences, arguments.max_tokens)
    if torch.cat(scores).isnan().any():
        raise ValueError(
            f"CHECKPOINT: needs a model whose scores are numbers; got nan from {arguments.checkpoint}. Use one from "
            "before the training diverged."
        )
    total = 0.0
    for text, of_tokens in zip(texts, scores, strict=True):
        value = of_tokens.sum().item()
        total += value
        print(value, len(of_tokens), text, sep="\t")
    if arguments.per_word is not None:
        words = [dictionary[index] for sentence in predicted for index in sentence.tolist()]
        with written_aside(arguments.per_word) as aside, aside.open("w", encoding="utf-8") as file:
            write_word_scores(zip(words, torch.cat(scores).tolist(), strict=True), file)
    unknown = sum(int(sentence.eq(dictionary.unk()).sum()) for sentence in predicted)
    if arguments.raw:
        found = f"mean raw score {total / tokens:.4f}, which is no log-probability; {model.summary()}"
    else:
        found = f"perplexity {get_perplexity(-total / tokens, base=math.e):.2f}" + _tallied(model, predicted, total)
    print(f"{len(texts):,} sentences, {tokens:,} tokens ({unknown:,} unknown), {found}", file=sys.stderr)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Checks options and files before any of them is read."""
    if arguments.max_tokens < 1:
        raise ValueError(f"--max-tokens: needs a positive number; got {arguments.max_tokens}. Use 4000, say.")
    if arguments.raw_sample is not None and not arguments.raw:
        raise ValueError(
            f"--raw-sample: needs --raw, whose log Z it is of; got {arguments.raw_sample} without it. Leave it out, or "
            "use that."
        )
    if arguments.raw_sample is not None and arguments.raw_sample < 1:
        raise ValueError(f"--raw-sample: needs a positive number; got {arguments.raw_sample}. Use 1000, say.")
    for path in arguments.sentences:
        if path != "-" and not Path(path).is_file():
            raise ValueError(f"SENTENCES: need text files; got {path}, which is none. Use another, or - for stdin.")
    if arguments.per_word is not None and arguments.raw:
        raise ValueError(
            f"--per-word: needs logarithms of probabilities; got {arguments.per_word} with --raw, whose scores "
            "are none. Use one or the other."
        )
    if arguments.per_word is not None:
        texts = [Path(path) for path in arguments.sentences if path != "-"]
        inputs = [arguments.checkpoint, arguments.data / "dict.txt", *texts]
        check_output(arguments.per_word, flag="--per-word", inputs=inputs)


def _load(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Returns the model, on the device that scores, and its task, after checking what the options need of them."""
    import torch

    from fairseq_tiedemb.analysis.language_models import load_language_model
    from fairseq_tiedemb.analysis.sentence_scores import begins_with_bos

    import_user_dir(arguments.user_dir)
    model, task = load_language_model(arguments.checkpoint, arguments.data)
    if arguments.stream:
        _check_stream(model, task)
    if arguments.raw and begins_with_bos(task):
        raise ValueError(
            f"--raw: needs a model that does not predict <s>, whose log Z would count; got {arguments.checkpoint}, "
            "trained with --add-bos-token. Leave it out."
        )
    if torch.cuda.is_available() and not arguments.cpu:
        model.cuda()
    return model, task


def _check_stream(model: Any, task: Any) -> None:
    """Checks that ``--task contiguous_lm`` could continue the model's training."""
    if not hasattr(model, "carried_state"):
        raise ValueError(
            f"--stream: needs a model that carries its state over, a recurrent or feed-forward one of fairseq_tiedemb; "
            f"got {type(model).__name__}. Leave it out."
        )
    for name, neutral in (("add_bos_token", False), ("output_dictionary_size", -1)):
        value = getattr(task.args, name, neutral)
        if value not in (None, neutral):
            raise ValueError(
                f"--stream: needs a model that can be trained on one stream of text; got one of --"
                f"{name.replace('_', '-')} {value}. Leave it out."
            )


def _read(paths: Sequence[str]) -> list[str]:
    """Returns the lines of all files, without byte-order marks at the files' beginnings."""
    with fileinput.input(paths, encoding="utf-8") as lines:
        try:
            texts = [line.rstrip("\n").removeprefix("\ufeff" if lines.isfirstline() else "") for line in lines]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"SENTENCES: need text in UTF-8; got {lines.filename()} ({error}). Use iconv -f LATIN1 -t UTF-8, say."
            ) from None
    if not texts:
        read = ", ".join("standard input" if path == "-" else path for path in paths)
        raise ValueError(f"SENTENCES: need one line at least; got an empty text, {read}. Use a text with sentences.")
    return texts


def _tallied(model: Any, sentences: Sequence[Any], total: float) -> str:
    """Returns a text on what the head tallies (``Head.tally``), to follow the perplexity; "" for most heads."""
    import torch
    from fairseq.utils import get_perplexity

    words = torch.cat(list(sentences)).to(next(model.parameters()).device)
    tallies = (
        model.tally(words.unsqueeze(0), {"src_lengths": torch.tensor([len(words)])}) if hasattr(model, "tally") else {}
    )
    text = ""
    for name, value in tallies.items():
        kind, _, label = name.partition(":")
        if kind == "share":
            text += f"; {100 * value.item() / len(words):.2f}% of the tokens {label}"
        else:
            perplexity = get_perplexity(-(total + value.item()) / len(words), base=math.e)
            text += f"; perplexity {perplexity:.2f} {label.replace('_', ' ')}"
    return text


def _check_lengths(sentences: Sequence[Any], limit: int) -> None:
    for number, sentence in enumerate(sentences, start=1):
        if len(sentence) > limit:
            raise ValueError(
                f"SENTENCES: need at most {limit} tokens each, their end included, as the model was trained with; got "
                f"{len(sentence)} in line {number}. Use shorter ones."
            )
