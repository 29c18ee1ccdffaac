"""Vectors out of counts of which words stand near which: mutual information, and its truncated SVD.

Source: Levy, Goldberg & Dagan 2015, "Improving distributional similarity with lessons learned from word embeddings",
sections 2 and 3; the shift is of Levy & Goldberg 2014.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np


def window_counts(text: Iterable[tuple[np.ndarray, np.ndarray]], size: int, window: int) -> Any:
    """How often words stand near each other, nearer ones counting more.

        n_wc = sum over tokens w and c of one sentence, d <= W words apart, of W + 1 - d

    which is W times the number of pairs that skip-gram has to expect where it draws the half-width of each window from
    1 ... W. There is never more in memory than the cells that are not 0, and the pairs of one part of the text.

    Args:
        text: parts of the text: words, numbers in [0, V), and the sentence of each, numbers that rise.
        size: V.
        window: W.

    Returns:
        scipy's sparse array (V, V), symmetric, int64.
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
    """What words have to do with each other, beyond how frequent they are.

        M_wc = max(0, log(p(w, c) / (p(w) q(c))) - log k)

        p(w, c) = n_wc / sum n,  p(w) = sum_c n_wc / sum n,  q(c) = n_c^a / sum_v n_v^a,  n_c = sum_w n_wc

    Args:
        counts: n, sparse (V, V).
        smoothing: a; below 1 it keeps rare contexts from having the largest values.
        shift: k, negative samples of the skip-gram whose scores these are; 1 shifts nothing.

    Returns:
        scipy's sparse array (V, V), float64, with positive values only.
    """
    found = counts.astype(np.float64)
    of_word, of_context = found.sum(1), found.sum(0)
    # Of words without any there is no cell either.
    log_word, log_context = (np.log(np.where(each > 0, each, 1.0)) for each in (of_word, of_context))
    smoothed = np.where(of_context > 0, of_context**smoothing, 0.0)
    values = np.log(found.data, out=found.data)
    values -= np.repeat(log_word, np.diff(found.indptr))
    values -= smoothing * log_context[found.indices]
    values += np.log(smoothed.sum()) - np.log(shift)
    np.maximum(values, 0.0, out=values)
    found.eliminate_zeros()
    return found


def singular_vectors(matrix: Any, dim: int, *, power: float) -> np.ndarray:
    """Rows of D numbers for those of a sparse matrix: with M = U S V', and of it the D largest values, U S^p.

    Args:
        matrix: M, (V, V).
        dim: D < V.
        power: p; 1 keeps the inner products of M's rows as well as D numbers can, 0 gives all directions one weight.

    Returns:
        (V, D), float64, of which the largest number of each column is positive; the same for the same matrix.
    """
    from scipy.sparse.linalg import svds

    start = np.random.default_rng(1).standard_normal(min(matrix.shape))
    left, values, _ = svds(matrix, k=dim, v0=start)
    order = np.argsort(-values)
    left, values = left[:, order], values[order]
    signs = np.sign(left[np.abs(left).argmax(0), np.arange(dim)])
    return left * signs * values**power
