"""Word vectors from co-occurrence counts: positive mutual information and its truncated SVD.

Source: Levy, Goldberg & Dagan 2015, "Improving distributional similarity with lessons learned from word embeddings",
sections 2 and 3; the shift is from Levy & Goldberg 2014.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np


def window_counts(text: Iterable[tuple[np.ndarray, np.ndarray]], size: int, window: int) -> Any:
    """Counts how often words occur within W tokens of one another in a sentence, weighting nearer pairs more.

        n_wc = sum over tokens w and c of one sentence, d <= W words apart, of W + 1 - d

    This is W times the expected number of skip-gram pairs if every window's half-width is drawn from 1 ... W. Memory
    holds the non-zero cells and the pairs of one part of the text. A part is words, numbers in [0, V), and their rising
    sentence numbers; `size` is V, and `window` W. Returns scipy's sparse array (V, V), symmetric, int64.
    """
    from scipy.sparse import coo_array, csr_array  # which take a moment to import

    total = csr_array((size, size), dtype=np.int64)
    for words, sentences in text:
        before, after, weights = [], [], []
        for distance in range(1, window + 1):
            together = sentences[:-distance] == sentences[distance:]
            before.append(words[:-distance][together])
            after.append(words[distance:][together])
            weights.append(np.full(len(before[-1]), window + 1 - distance, np.int64))
            if not together.any():  # a window may be wider than every sentence
                break
        places = (np.concatenate(before), np.concatenate(after))
        total += coo_array((np.concatenate(weights), places), total.shape).tocsr()
    return (total + total.T).tocsr()


def positive_mutual_information(counts: Any, *, smoothing: float, shift: float) -> Any:
    """Computes the shifted positive pointwise mutual information of words and contexts.

        M_wc = max(0, log(p(w, c) / (p(w) q(c))) - log k)

        p(w, c) = n_wc / sum n,  p(w) = sum_c n_wc / sum n,  q(c) = n_c^a / sum_v n_v^a,  n_c = sum_w n_wc

    `counts` is n, sparse (V, V); `smoothing` is a, with which below 1 rare contexts do not get the largest values; and
    `shift` is k, the number of negative samples of the equivalent skip-gram, 1 for no shift. Returns scipy's sparse
    array (V, V), float64, with positive values only.
    """
    information = counts.astype(np.float64)
    of_word, of_context = information.sum(1), information.sum(0)
    # A word without counts has no cell, so that its logarithm is never used.
    log_word, log_context = (np.log(np.where(sums > 0, sums, 1.0)) for sums in (of_word, of_context))
    smoothed = np.where(of_context > 0, of_context**smoothing, 0.0)
    values = np.log(information.data, out=information.data)
    values -= np.repeat(log_word, np.diff(information.indptr))
    values -= smoothing * log_context[information.indices]
    values += np.log(smoothed.sum()) - np.log(shift)
    np.maximum(values, 0.0, out=values)
    information.eliminate_zeros()
    return information


def singular_vectors(matrix: Any, dim: int, *, power: float) -> np.ndarray:
    """Returns the rows of U S^p, the D < V largest singular values and vectors of a sparse matrix M = U S V', (V, V).

    With the `power` p = 1 inner products of M's rows are kept best, with 0 all directions weigh the same. The result
    is (V, D), float64; deterministic, with a positive largest entry in every column.
    """
    from scipy.sparse.linalg import svds

    start = np.random.default_rng(1).standard_normal(min(matrix.shape))
    left, values, _ = svds(matrix, k=dim, v0=start)
    order = np.argsort(-values)
    left, values = left[:, order], values[order]
    signs = np.sign(left[np.abs(left).argmax(0), np.arange(dim)])
    return left * signs * values**power
