"""Scores sentences by a language model: log-probability, predicted tokens and text of each, in their order.

Reads one sentence a line, split into words as the training text was, from files or from standard input; any of
fairseq's language models will do. Prints, separated by tabs, the natural logarithm of the sentence's probability, its
end included, the number of tokens predicted, and the sentence; at the end, on standard error, the perplexity of all.
"""

import argparse
import fileinput
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import data_utils
from torch import Tensor

from fairseq_tiedemb.analysis.language_models import load_language_model, log_probabilities


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("checkpoint", type=Path, help="checkpoint of a language model")
    parser.add_argument("sentences", nargs="*", default=["-"], help="text files; standard input if none")
    parser.add_argument("--data", type=Path, required=True, help="folder with the dict.txt of the training")
    parser.add_argument("--max-tokens", type=int, default=4000, help="tokens of a batch, padding included")
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")


def run(arguments: argparse.Namespace) -> int:
    """Scores all sentences.

    Raises:
        ValueError: if a file is missing, the checkpoint is no language model, or a sentence too long for it.
    """
    if arguments.max_tokens < 1:
        raise ValueError(f"--max-tokens: needs a positive number; got {arguments.max_tokens}. Use 4000, say.")
    for path in arguments.sentences:
        if path != "-" and not Path(path).is_file():
            raise ValueError(f"SENTENCES: need text files; got {path}, which is none. Use another, or - for stdin.")
    model, task = load_language_model(arguments.checkpoint, arguments.data)
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
    scores = torch.zeros(len(sentences), dtype=torch.float64)
    for batch in _batches([len(sentence) for sentence in sentences], arguments.max_tokens):
        scores[batch] = score(model, dictionary, [sentences[index] for index in batch])
    for text, sentence, value in zip(texts, sentences, scores.tolist(), strict=True):
        print(value, len(sentence), text, sep="\t")
    tokens = sum(len(sentence) for sentence in sentences)
    unknown = sum(int(sentence.eq(dictionary.unk()).sum()) for sentence in sentences)
    perplexity = math.exp(-scores.sum().item() / tokens)
    print(
        f"{len(texts):,} sentences, {tokens:,} tokens ({unknown:,} unknown), perplexity {perplexity:.2f}"
        + _as_printed(model, sentences, scores),
        file=sys.stderr,
    )
    return 0


def _as_printed(model: Any, sentences: Sequence[Tensor], scores: Tensor) -> str:
    """Of a short-list, its other perplexity, in words that follow the one of all words; else nothing."""
    words = torch.cat(list(sentences)).to(next(model.parameters()).device)
    sums = {}
    if hasattr(model, "tally"):
        sums = model.tally(words.unsqueeze(0), {"src_lengths": torch.tensor([len(words)])})
    if not sums:
        return ""
    perplexity = math.exp(-(scores.sum().item() + sums["outside_nll"].item()) / len(words))
    return (
        f" by counts of the words outside the short-list, {100 * sums['outside'].item() / len(words):.2f}% of the "
        f"tokens; {perplexity:.2f} as printed, with <unk> in their place"
    )


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
    picked = log_probabilities(model, target, {"src_tokens": previous, "src_lengths": lengths})
    # By length: a text may have a word "<pad>".
    is_word = torch.arange(target.size(1), device=device) < lengths.unsqueeze(1)
    return picked.double().masked_fill(~is_word, 0.0).sum(1).cpu()


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
