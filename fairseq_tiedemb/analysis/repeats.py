"""Measures the probability that a language model gives to repeating the previous word.

Source: Press & Wolf 2016, section 3: in a tied model the output's part of the gradient of the row of the input word i_t
grows with p(i_t | i_1..i_t), which "is expected to be close to zero, since words seldom appear twice in a row".
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch

from fairseq_tiedemb.analysis.sentence_scores import log_probabilities

SHOWN = 3


class Repeats(NamedTuple):
    """Repetition in a text, over the tokens that follow a word of their own sentence."""

    probabilities: np.ndarray  # p(w_{t-1} | history), the model's probability of a repeat, float64
    repeated: list[int]  # the words that the text does repeat, once per repeat

    def describe(self, dictionary: Any) -> list[str]:
        """Formats the means and the most repeated words as lines of text."""
        count = len(self.probabilities)
        often = [f"{dictionary[word]} {times:,}" for word, times in Counter(self.repeated).most_common(SHOWN)]
        listed = f" ({', '.join(often)})" if often else ""
        return [
            f"repeat probability p(w_t-1 | history): mean {self.probabilities.mean():.4f}, median "
            f"{np.median(self.probabilities):.1e}, over {count:,} tokens that follow a word",
            f"repeats in the text: {len(self.repeated) / count:.4f}, {len(self.repeated):,} tokens{listed}",
        ]


@torch.no_grad()
def repeats(model: Any, batches: Iterable[dict[str, Any]], dictionary: Any) -> Repeats:
    """Scores every word of a text as if it were repeated, by a language model in evaluation mode.

    `batches` are fairseq's in order, whose ``src_tokens`` are the previous words. Tokens after ``</s>`` or padding have
    no word to repeat; ValueError if none follows a word.
    """
    repeat_probabilities, repeated = [], []
    for batch in batches:
        if not batch:  # fairseq gives shards one length by empty batches
            continue
        previous, target = batch["net_input"]["src_tokens"], batch["target"]
        follows = target.ne(dictionary.pad())
        for symbol in (dictionary.pad(), dictionary.eos(), dictionary.bos()):  # which are no words
            follows &= previous.ne(symbol)
        repeat_probabilities.append(log_probabilities(model, previous, batch["net_input"])[follows].double().exp())
        repeated += previous[follows & previous.eq(target)].tolist()
    probabilities = torch.cat(repeat_probabilities).numpy() if repeat_probabilities else np.empty(0)
    if not len(probabilities):
        raise ValueError("--gen-subset: needs sentences of two words or more; got none. Use another.")
    return Repeats(probabilities, repeated)
