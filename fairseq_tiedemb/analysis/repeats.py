"""How probable a model holds it that a word comes twice in a row.

Source: Press & Wolf 2016, section 3: in a tied model the output's part of the gradient of the row of the input word i_t
grows with p(i_t | i_1..i_t), which "is expected to be close to zero, since words seldom appear twice in a row".
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairseq_tiedemb.analysis.language_models import log_probabilities

SHOWN = 3


@dataclass(frozen=True)
class Repeats:
    """Of every token that follows a word of its own sentence.

    Attributes:
        probabilities: p(w_{t-1} | history) that the token is that word again, float64.
        repeated: the words that did come again, each as often as it did.
    """

    probabilities: np.ndarray
    repeated: list[int]

    def describe(self, dictionary: Any) -> list[str]:
        """Lines for people."""
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
    """Scores each word of a text as if it came again.

    Args:
        model: a language model, in evaluation mode.
        batches: fairseq's, in their order, with previous words as ``src_tokens``.
        dictionary: of the model; after ``</s>`` and padding there is nothing to repeat.

    Raises:
        ValueError: if no token follows a word.
    """
    found, repeated = [], []
    for batch in batches:
        if not batch:  # fairseq's fillers
            continue
        previous, target = batch["net_input"]["src_tokens"], batch["target"]
        follows = follows_word(previous, dictionary) & target.ne(dictionary.pad())
        found.append(log_probabilities(model, previous, batch["net_input"])[follows].double().exp())
        repeated += previous[follows & previous.eq(target)].tolist()
    probabilities = torch.cat(found).numpy() if found else np.empty(0)
    if not len(probabilities):
        raise ValueError("--gen-subset: needs sentences of two words or more; got none. Use another.")
    return Repeats(probabilities, repeated)


def follows_word(previous: Tensor, dictionary: Any) -> Tensor:
    """Where the previous token is a word."""
    return previous.ne(dictionary.pad()) & previous.ne(dictionary.eos()) & previous.ne(dictionary.bos())
