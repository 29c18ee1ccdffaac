"""Scores sentences by a language model: log-probability, predicted tokens and text of each, in their order.

Reads one sentence a line, split into words as the training text was, from files or from standard input; any of
fairseq's language models will do. Prints, separated by tabs, the natural logarithm of the sentence's probability, its
end included, the number of tokens predicted, and the sentence; at the end, on standard error, the perplexity of all.

With --raw, scores of the words stand for logarithms of their probabilities, as they come from the output layer: at the
cost of one word in place of all. They are no probabilities. How far they are from any is printed beside their mean.
"""

import argparse
import fileinput
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, models
from fairseq.data import data_utils
from torch import Tensor

import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)
from fairseq_tiedemb.analysis.normalisers import RawScorer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("checkpoint", type=Path, help="checkpoint of a language model")
    parser.add_argument("sentences", nargs="*", default=["-"], help="text files; standard input if none")
    parser.add_argument("--data", type=Path, required=True, help="folder with the dict.txt of the training")
    parser.add_argument("--max-tokens", type=int, default=4000, help="tokens of a batch, padding included")
    parser.add_argument(
        "--raw", action="store_true", help="scores that are not normalised, of a model that was trained to need no more"
    )
    parser.add_argument(
        "--raw-sample",
        type=int,
        default=1000,
        metavar="N",
        help="tokens whose log Z is computed, with --raw (default: 1000)",
    )
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")


def run(arguments: argparse.Namespace) -> int:
    """Scores all sentences.

    Raises:
        ValueError: if a file is missing, the checkpoint is no language model, or a sentence too long for it.
    """
    for flag, path in (("CHECKPOINT", arguments.checkpoint), ("--data", arguments.data / "dict.txt")):
        if not path.is_file():
            if flag == "--data":  # which translation has none of, so that it may be the checkpoint that is wrong
                _require_language_model(_model_class(arguments.checkpoint))
            raise ValueError(f"{flag}: needs a file; got {path}, which is none. Use another path.")
    if arguments.max_tokens < 1:
        raise ValueError(f"--max-tokens: needs a positive number; got {arguments.max_tokens}. Use 4000, say.")
    if arguments.raw_sample < 1:
        raise ValueError(f"--raw-sample: needs a positive number; got {arguments.raw_sample}. Use 1000, say.")
    for path in arguments.sentences:
        if path != "-" and not Path(path).is_file():
            raise ValueError(f"SENTENCES: need text files; got {path}, which is none. Use another, or - for stdin.")
    ensemble, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(arguments.checkpoint)], arg_overrides={"data": str(arguments.data)}
    )
    model = ensemble[0].eval()
    _require_language_model(type(model))
    if torch.cuda.is_available() and not arguments.cpu:
        model.cuda()
    with fileinput.input(arguments.sentences, encoding="utf-8") as lines:
        try:
            texts = [_without_mark(line.rstrip("\n"), first=lines.isfirstline()) for line in lines]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"SENTENCES: need text in UTF-8; got {lines.filename()} ({error}). Use iconv -f LATIN1 -t UTF-8, say."
            ) from None
    if not texts:
        read = ", ".join("standard input" if path == "-" else path for path in arguments.sentences)
        raise ValueError(f"SENTENCES: need one line at least; got an empty text, {read}. Use a text with sentences.")
    dictionary = task.source_dictionary
    sentences = [dictionary.encode_line(text, add_if_not_exist=False).long() for text in texts]
    _check_lengths(sentences, model.max_positions())
    tokens = sum(len(sentence) for sentence in sentences)
    if arguments.raw:
        model = RawScorer(model, tokens, arguments.raw_sample)
    scores = torch.zeros(len(sentences), dtype=torch.float64)
    for batch in _batches([len(sentence) for sentence in sentences], arguments.max_tokens):
        scores[batch] = score(model, dictionary, [sentences[index] for index in batch])
    for text, sentence, value in zip(texts, sentences, scores.tolist(), strict=True):
        print(value, len(sentence), text, sep="\t")
    unknown = sum(int(sentence.eq(dictionary.unk()).sum()) for sentence in sentences)
    mean = scores.sum().item() / tokens
    if arguments.raw:
        found = f"mean raw score {mean:.4f}, which is no log-probability; {model.summary()}"
    else:
        found = f"perplexity {math.exp(-mean):.2f}"
    print(f"{len(texts):,} sentences, {tokens:,} tokens ({unknown:,} unknown), {found}", file=sys.stderr)
    return 0


@torch.no_grad()
def score(model: Any, dictionary: Any, sentences: Sequence[Tensor]) -> Tensor:
    """Natural logarithms of the probabilities of sentences, (B,), float64.

    Args:
        model: a language model.
        dictionary: its dictionary.
        sentences: indices of words, each with the end of sentence last.
    """
    device, pad = next(model.parameters()).device, dictionary.pad()
    target = data_utils.collate_tokens(sentences, pad).to(device)
    previous = data_utils.collate_tokens(sentences, pad, dictionary.eos(), move_eos_to_beginning=True).to(device)
    lengths = torch.tensor([len(sentence) for sentence in sentences], device=device)
    if hasattr(model, "log_prob"):  # ours, which need no scores of all words
        picked = model.log_prob(target, src_tokens=previous, src_lengths=lengths)
    else:
        output = model(previous, src_lengths=lengths)
        log_probabilities = model.get_normalized_probs(output, log_probs=True, sample={"target": target})
        picked = log_probabilities.gather(2, target.unsqueeze(2)).squeeze(2)
    # By length: a text may have a word "<pad>".
    is_word = torch.arange(target.size(1), device=device) < lengths.unsqueeze(1)
    return picked.double().masked_fill(~is_word, 0.0).sum(1).cpu()


def _model_class(checkpoint: Path) -> Any:
    """The class of a checkpoint's model."""
    model = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))["cfg"].model
    name = getattr(model, "_name", None) or getattr(model, "arch", None)
    return models.ARCH_MODEL_REGISTRY.get(name) or models.MODEL_REGISTRY.get(name)


def _require_language_model(model: Any) -> None:
    if model is not None and not hasattr(model, "supported_targets"):  # what fairseq asks language models for
        raise ValueError(
            f"CHECKPOINT: needs a language model; got {model.__name__}, which translates. "
            "Use fairseq-generate --score-reference."
        )


def _without_mark(line: str, *, first: bool) -> str:
    """A line without the byte-order mark that the first one of a file may have."""
    return line.removeprefix("\ufeff") if first else line


def _check_lengths(sentences: Sequence[Tensor], limit: int) -> None:
    for number, sentence in enumerate(sentences, start=1):
        if len(sentence) > limit:
            raise ValueError(
                f"SENTENCES: need at most {limit} tokens each, their end included, as the model was trained with; got "
                f"{len(sentence)} in line {number}. Use shorter ones."
            )


def _batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Indices of sentences, batch by batch, of about one length."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[index] > max_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
