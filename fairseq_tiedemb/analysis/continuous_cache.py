"""A continuous cache for a language model: recent words become likelier, by the similarity of their features.

    p(w | h_t) = (1 - lambda) p_model(w | h_t) + lambda p_cache(w | h_t)
    p_cache(w | h_t) = sum of exp(theta h_t . h_i) over the places i of w among the last N / the same sum over all N

The model is not trained for it, and its own figures stay without it.

Source: Grave, Joulin & Usunier 2017, section 3 and equation 5 (linear interpolation).
"""

import math
from typing import Any

import torch
from torch import Tensor

BLOCK = 256  # places whose scores against the cache are in memory at once


class ContinuousCache:
    """Wraps a language model so that ``log_prob`` also adds up the log-probabilities that a cache would give.

    All other attributes, and what ``log_prob`` returns, are the model's own.

    Args:
        model: a ``TiedModel`` that reads one stream of text.
        size: N, the number of words in the cache.
        theta: factor of the products of features.
        weight: lambda, the share of the cache.
    """

    def __init__(self, model: Any, *, size: int, theta: float, weight: float):
        self._model, self._size, self._theta, self._weight = model, size, theta, weight
        self._features_ND, self._words_N = torch.empty(0, 0), torch.empty(0, dtype=torch.long)
        self._total, self._tokens = 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def log_prob(self, target: Tensor, **net_input: Any) -> Tensor:
        """Returns the model's log-probabilities (1, T) of the next words of the stream."""
        features_TD = self._model.extract_features(**net_input)[0][0]
        log_probs_T = self._model.output.log_prob(features_TD, target[0])
        if not len(self._words_N):
            self._features_ND, self._words_N = features_TD[:0].float(), target[0][:0]
        features_ND = torch.cat((self._features_ND, features_TD.float()))
        words_N, first = torch.cat((self._words_N, target[0])), len(self._words_N)
        for begin in range(first, len(words_N), BLOCK):
            places = slice(begin, min(begin + BLOCK, len(words_N)))
            cached = self._from_cache(features_ND, words_N, places)
            of_model = log_probs_T[begin - first : places.stop - first].double()
            log_weight = math.log(self._weight) if self._weight else -math.inf
            both = torch.logaddexp(of_model + math.log1p(-self._weight), cached + log_weight)
            self._total += torch.where(cached.isnan(), of_model, both).sum().item()
        self._tokens += len(log_probs_T)
        self._features_ND, self._words_N = features_ND[-self._size :], words_N[-self._size :]
        return log_probs_T.unsqueeze(0)

    def _from_cache(self, features_ND: Tensor, words_N: Tensor, places: slice) -> Tensor:
        """log p_cache of the words at some places, -inf where the cache does not have them, nan where it is empty."""
        start = max(0, places.start - self._size)
        scores = self._theta * features_ND[places] @ features_ND[start : places.stop].t()
        at = torch.arange(places.start, places.stop, device=scores.device).unsqueeze(1)
        before = torch.arange(start, places.stop, device=scores.device)
        scores = scores.double().masked_fill((before >= at) | (before < at - self._size), -torch.inf)
        same = words_N[start : places.stop] == words_N[places].unsqueeze(1)
        return scores.masked_fill(~same, -torch.inf).logsumexp(1) - scores.logsumexp(1)

    def summary(self) -> str:
        """The perplexity with the cache."""
        perplexity = torch.tensor(-self._total / self._tokens, dtype=torch.float64).exp().item()  # inf if too large
        return f"{perplexity:.2f} with a cache of {self._size:,} words, theta {self._theta:g}, lambda {self._weight:g}"
