"""Measures how close logits are to log-probabilities, so that one logit can replace a whole softmax.

    log P(w | h) = logit(h)_w - log Z(h),   Z(h) = sum_v exp logit(h)_v

Models trained with ``--z-loss`` or by noise-contrastive estimation are self-normalised: log Z is close to 0 for every
h. Z needs all V logits and is therefore computed for a sample of tokens.

Source: Devlin et al. 2014 (self-normalised networks); Mnih & Teh 2012.
"""

from typing import Any

import torch
from torch import Tensor

SEED = 1  # scoring a text twice draws the same sample


class RawScorer:
    """Wraps a language model so that ``log_prob`` returns logits without the softmax's normaliser.

    All other attributes are the model's own.

    Args:
        model: a ``TiedModel``.
        tokens: the number of tokens of the whole text.
        sample: the number of tokens, drawn at random, whose log Z is computed.

    Raises:
        ValueError: if the output layer has no logits of single words.
    """

    def __init__(self, model: Any, tokens: int, sample: int):
        if not hasattr(model, "output"):
            raise ValueError(f"--raw: needs a model of fairseq_tiedemb; got {type(model).__name__}. Leave it out.")
        model.output.check_raw_scores()
        self._model = model
        chosen = torch.randperm(tokens, generator=torch.Generator().manual_seed(SEED))[:sample]
        self._is_chosen = torch.zeros(tokens, dtype=torch.bool).index_fill(0, chosen, True)
        self.log_z: list[float] = []  # of the sample's tokens so far
        self.log_probs: list[float] = []  # of the same tokens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def log_prob(self, target: Tensor, **net_input: Any) -> Tensor:
        """Returns the logits (B, T) of the target tokens, 0 at padding; only the sample costs a whole softmax."""
        model = self._model
        features_BTD = model.extract_features(**net_input)[0]
        is_word = model.is_word(target, net_input)
        features_ND, target_N = features_BTD[is_word], target[is_word]
        scores_N = model.output.raw_scores(features_ND, target_N)
        chosen_N, self._is_chosen = self._is_chosen.tensor_split([len(target_N)])
        chosen_N = chosen_N.to(target.device)
        if chosen_N.any():
            log_probs = model.output.log_prob(features_ND[chosen_N], target_N[chosen_N])
            known = log_probs.isfinite()  # a special symbol that training never saw has probability 0
            self.log_z += (scores_N[chosen_N] - log_probs)[known].tolist()
            self.log_probs += log_probs[known].tolist()
        return torch.zeros_like(target, dtype=scores_N.dtype).masked_scatter(is_word, scores_N)

    def summary(self) -> str:
        """Describes the sample: mean log P, and the mean, mean size and standard deviation of log Z."""
        log_z = torch.tensor(self.log_z, dtype=torch.float64)
        log_prob = torch.tensor(self.log_probs, dtype=torch.float64).mean()
        return (
            f"of {len(log_z):,} tokens drawn at random: mean log P {log_prob:.4f}, mean log Z {log_z.mean():.4f}, "
            f"mean |log Z| {log_z.abs().mean():.4f}, standard deviation {log_z.std(correction=0):.4f}"
        )
