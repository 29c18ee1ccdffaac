"""How close a model's scores are to log-probabilities, so that one score may stand for one at the cost of one word.

    log P(w | h) = score(h)_w - log Z(h),   Z(h) = sum_v exp score(h)_v

Models that are trained with ``--z-loss``, or by noise-contrastive estimation, normalise themselves: their log Z is
close to 0 whatever h is. How close, only Z tells, so that of a sample of words it is computed.

Source: Devlin et al. 2014 (self-normalised networks); Mnih & Teh 2012.
"""

from typing import Any

import torch
from torch import Tensor

# Of the sample: the same words are drawn whenever the same text is scored.
SEED = 1


class RawScorer:
    """A language model whose scores stand for log-probabilities, for whoever asks it for these.

    Everything but ``log_prob`` is the model's own.

    Args:
        model: a ``TiedModel``.
        tokens: how many words will be scored in all.
        sample: how many of them, drawn at random, log Z is computed of.

    Attributes:
        log_z: log Z of the sample so far.
        log_probs: log P of the same words.

    Raises:
        ValueError: if the model has no scores of single words.
    """

    def __init__(self, model: Any, tokens: int, sample: int):
        if not hasattr(model, "output"):
            raise ValueError(f"--raw: needs a model of fairseq_tiedemb; got {type(model).__name__}. Leave it out.")
        model.output.check_raw_scores()
        self._model = model
        chosen = torch.randperm(tokens, generator=torch.Generator().manual_seed(SEED))[:sample]
        self._is_chosen = torch.zeros(tokens, dtype=torch.bool).index_fill(0, chosen, True)
        self.log_z: list[float] = []
        self.log_probs: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def log_prob(self, target: Tensor, **net_input: Any) -> Tensor:
        """Scores of the target words (B, T), 0 for padding, at the cost of these words alone but for the sample.

        Args:
            target: right words (B, T).
            net_input: as for ``forward``.
        """
        model = self._model
        features_BTD = model.extract_features(**net_input)[0]
        is_word = model.is_word(target, net_input)
        features_ND, target_N = features_BTD[is_word], target[is_word]
        scores_N = model.output.raw_scores(features_ND, target_N)
        chosen_N, self._is_chosen = self._is_chosen.tensor_split([len(target_N)])
        chosen_N = chosen_N.to(target.device)
        if chosen_N.any():
            log_probs = model.output.log_prob(features_ND[chosen_N], target_N[chosen_N])
            known = log_probs.isfinite()  # a mark that training has never seen has no probability
            self.log_z += (scores_N[chosen_N] - log_probs)[known].tolist()
            self.log_probs += log_probs[known].tolist()
        return torch.zeros_like(target, dtype=scores_N.dtype).masked_scatter(is_word, scores_N)

    def summary(self) -> str:
        """The sample's mean log P, and the mean, size and spread of its log Z, in words."""
        log_z = torch.tensor(self.log_z, dtype=torch.float64)
        log_prob = torch.tensor(self.log_probs, dtype=torch.float64).mean()
        return (
            f"of {len(log_z):,} tokens drawn at random: mean log P {log_prob:.4f}, mean log Z {log_z.mean():.4f}, "
            f"mean |log Z| {log_z.abs().mean():.4f}, standard deviation {log_z.std(correction=0):.4f}"
        )
