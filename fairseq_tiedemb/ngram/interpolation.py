"""Linear interpolation of language models, with weights estimated by EM on held-out text.

    p(w | h) = sum_i lambda_i p_i(w | h)     lambda_i = mean over the text of lambda_i p_i / sum_j lambda_j p_j

No round lowers the text's log-likelihood, which is concave in the weights: EM converges to the maximum.

Source: Jelinek & Mercer 1980; Dempster, Laird & Rubin 1977.
"""

import numpy as np

from .fields import Reals, first_true

# EM stops when a round gains less than this, in nats per token.
SMALLEST_GAIN = 1e-10
MOST_ROUNDS = 10_000


def mixture(logs_MN: Reals, weights_M: Reals) -> Reals:
    """Returns log sum_i lambda_i p_i (N,), from M models' log-probabilities of N tokens and the weights lambda."""
    highest = logs_MN.max(axis=0)
    base = np.where(np.isfinite(highest), highest, 0.0)  # not finite if all models give probability 0
    with np.errstate(divide="ignore"):
        return np.log(weights_M @ np.exp(logs_MN - base)) + base


def estimate_mixture(logs_MN: Reals) -> tuple[Reals, list[float]]:
    """Estimates the weights by EM, from equal weights and M models' natural log-probabilities of N held-out tokens.

    Returns the weights (M,), which sum to 1, and the mean log-probability per token after 0, 1, 2, ... rounds;
    ValueError if all models give a token probability 0.
    """
    if (hopeless := first_true(~np.isfinite(logs_MN.max(axis=0)))) is not None:
        needs = "tokens with a positive probability by some model"
        got = f"0 by all models for token number {hopeless + 1}"
        raise ValueError(f"--held-out: needs {needs}; got {got}. Use other text, or models with <unk>.")
    weights = np.full(len(logs_MN), 1 / len(logs_MN))
    trace: list[float] = []
    while True:
        mixed = mixture(logs_MN, weights)
        trace.append(float(mixed.mean()))
        if len(trace) > MOST_ROUNDS or (len(trace) > 1 and trace[-1] - trace[-2] < SMALLEST_GAIN):
            return weights, trace
        weights = weights * np.exp(logs_MN - mixed).mean(axis=1)
        weights /= weights.sum()  # corrects rounding
