"""Log-probabilities of sentences' tokens by a language model, for separate sentences or one running text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.data import data_utils
from torch import Tensor


def begins_with_bos(task: Any) -> bool:
    """Whether the task puts ``<s>`` first in every sentence (``--add-bos-token``)."""
    return bool(getattr(getattr(task, "args", None), "add_bos_token", False))


def predicted_words(task: Any, words: Tensor) -> Tensor:
    """Replaces words beyond the model's ``--output-dictionary-size`` by ``<unk>``, as in training."""
    return words.masked_fill(words >= len(task.target_dictionary), task.source_dictionary.unk())


def sentence_scores(model: Any, task: Any, sentences: Sequence[Tensor], max_tokens: int) -> list[Tensor]:
    """Scores the tokens of separate sentences, in the context that training and fairseq-eval-lm give them.

    The model reads ``</s> w_1 w_2 ...``, and with ``--add-bos-token`` ``<s> </s> w_1 w_2 ...``. Sentences are token
    indices that end with the end-of-sentence symbol; a batch has up to `max_tokens`. Returns natural log-probabilities
    (T,) of every sentence, float64.
    """
    dictionary, before = task.source_dictionary, int(begins_with_bos(task))
    scores = [torch.empty(0)] * len(sentences)
    sizes = np.array([min(len(sentence), max_tokens) for sentence in sentences])  # a longer one is a batch of its own
    by_size = sizes.argsort(kind="stable")
    for batch in data_utils.batch_by_size(by_size, None, sizes[by_size], max_tokens):
        chosen = [sentences[index] for index in batch]
        target = predicted_words(task, data_utils.collate_tokens(chosen, dictionary.pad()))
        previous = data_utils.collate_tokens(chosen, dictionary.pad(), dictionary.eos(), move_eos_to_beginning=True)
        # <s> is a target too; fairseq-eval-lm leaves its score out of the sum.
        target, previous = (F.pad(tokens, (before, 0), value=dictionary.bos()) for tokens in (target, previous))
        lengths = torch.tensor([before + len(sentence) for sentence in chosen])
        # Cut by length, not at padding: a text may contain a word "<pad>".
        for index, row, length in zip(batch, score(model, target, previous, lengths), lengths.tolist(), strict=True):
            scores[index] = row[before:length]
    return scores


def stream_scores(model: Any, dictionary: Any, sentences: Sequence[Tensor], max_tokens: int) -> list[Tensor]:
    """Scores the tokens of one running text; the model's state is carried across batches and sentence ends.

    `model` needs ``carried_state``, as for ``--task contiguous_lm``; the other arguments and the result are those of
    ``sentence_scores``. The end-of-sentence symbol precedes the first token.
    """
    target = torch.cat(list(sentences))
    previous = torch.cat((target.new_tensor([dictionary.eos()]), target[:-1]))
    rows, begin = [], 0
    for words, before in zip(target.split(max_tokens), previous.split(max_tokens), strict=True):
        rows.append(score(model, words[None], before[None], torch.tensor([len(words)]), stream_position=begin)[0])
        begin += len(words)
    return list(torch.cat(rows).split([len(sentence) for sentence in sentences]))


@torch.no_grad()
def score(model: Any, target: Tensor, previous: Tensor, lengths: Tensor, **net_input: Any) -> Tensor:
    """Returns natural log-probabilities (B, T) of target tokens, float64; values beyond a row's length are meaningless.

    Target and previous tokens are (B, T), their number by row is in `lengths` (B,); `net_input` is for ``forward``.
    """
    device = next(model.parameters()).device
    inputs = {"src_tokens": previous.to(device), "src_lengths": lengths.to(device), **net_input}
    return log_probabilities(model, target.to(device), inputs).double().cpu()


def log_probabilities(model: Any, words_BT: Any, net_input: dict[str, Any]) -> Any:
    """Returns the natural log-probability (B, T) by a language model of the word at every position, given those before.

    `net_input` is that of fairseq's batch.
    """
    if hasattr(model, "log_prob"):  # our models compute it without the logits of the whole vocabulary
        return model.log_prob(words_BT, **net_input)
    log_probs_BTV = model.get_normalized_probs(model(**net_input), log_probs=True, sample={"target": words_BT})
    return log_probs_BTV.gather(2, words_BT.unsqueeze(2)).squeeze(2)
