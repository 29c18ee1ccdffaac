"""Log-probabilities of the tokens of sentences by a language model, each sentence by itself or all as one text."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.data import data_utils
from torch import Tensor

from fairseq_tiedemb.analysis.language_models import log_probabilities


def begins_with_bos(task: Any) -> bool:
    """Whether sentences were trained with ``<s>`` before all else, by ``--add-bos-token``."""
    return bool(getattr(getattr(task, "args", None), "add_bos_token", False))


def predicted_words(task: Any, words: Tensor) -> Tensor:
    """Words as a model predicts them: ``<unk>`` for those beyond its ``--output-dictionary-size``."""
    return words.masked_fill(words >= len(task.target_dictionary), task.source_dictionary.unk())


def sentence_scores(model: Any, task: Any, sentences: Sequence[Tensor], max_tokens: int) -> list[Tensor]:
    """Scores of the tokens of sentences, each by itself and in the context that training and fairseq-eval-lm give it.

    The model reads ``</s> w_1 w_2 ...``, and with ``--add-bos-token`` ``<s> </s> w_1 w_2 ...``.

    Args:
        model: a language model.
        task: its task.
        sentences: indices of words, each with the end of sentence last.
        max_tokens: tokens of a batch.

    Returns:
        For each sentence (T,), float64.
    """
    dictionary, before = task.source_dictionary, int(begins_with_bos(task))
    scores = [torch.empty(0)] * len(sentences)
    for batch in _batches([len(sentence) for sentence in sentences], max_tokens):
        chosen = [sentences[index] for index in batch]
        target = predicted_words(task, data_utils.collate_tokens(chosen, dictionary.pad()))
        previous = data_utils.collate_tokens(chosen, dictionary.pad(), dictionary.eos(), move_eos_to_beginning=True)
        # <s> is a target too, which fairseq-eval-lm leaves out of its sum.
        target, previous = (F.pad(each, (before, 0), value=dictionary.bos()) for each in (target, previous))
        lengths = torch.tensor([before + len(sentence) for sentence in chosen])
        # By length: a text may have a word "<pad>".
        for index, row, length in zip(batch, score(model, target, previous, lengths), lengths.tolist(), strict=True):
            scores[index] = row[before:length]
    return scores


def stream_scores(model: Any, dictionary: Any, sentences: Sequence[Tensor], max_tokens: int) -> list[Tensor]:
    """Scores of the tokens of one text: what the model carries goes from batch to batch, over ends of sentences.

    Args:
        model: a language model with ``carried_state``, as ``--task contiguous_lm`` needs.
        dictionary: its dictionary.
        sentences: indices of words, each with the end of sentence last. The first token is predicted from that, too.
        max_tokens: tokens of a batch.

    Returns:
        For each sentence (T,), float64.
    """
    target = torch.cat(list(sentences))
    previous = torch.cat((target.new_tensor([dictionary.eos()]), target[:-1]))
    rows = [
        score(
            model,
            target[begin : begin + max_tokens].unsqueeze(0),
            previous[begin : begin + max_tokens].unsqueeze(0),
            torch.tensor([min(max_tokens, len(target) - begin)]),
            stream_position=begin,
        )[0]
        for begin in range(0, len(target), max_tokens)
    ]
    return list(torch.cat(rows).split([len(sentence) for sentence in sentences]))


@torch.no_grad()
def score(model: Any, target: Tensor, previous: Tensor, lengths: Tensor, **net_input: Any) -> Tensor:
    """Natural logarithms of the probabilities of tokens, (B, T), float64; meaningless beyond a row's length.

    Args:
        model: a language model.
        target: the tokens (B, T).
        previous: the token before each (B, T).
        lengths: number of tokens of each row (B,).
        net_input: of the model's ``forward``, besides.
    """
    device = next(model.parameters()).device
    inputs = {"src_tokens": previous.to(device), "src_lengths": lengths.to(device), **net_input}
    return log_probabilities(model, target.to(device), inputs).double().cpu()


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
