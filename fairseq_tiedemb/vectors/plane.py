"""Projects vectors to two dimensions, by principal components or t-SNE."""

import numpy as np

PERPLEXITY = 30.0  # of t-SNE, if there are enough words
START_SPREAD = 1e-4  # standard deviation of t-SNE's initial places, scikit-learn's value


def principal_components(rows_ND: np.ndarray) -> tuple[np.ndarray, float]:
    """Projects rows on their two principal components: the first two columns of U S, where X - mean = U S V'.

    Returns places (N, 2), float64, with a positive largest entry in both columns; the share of the variance they keep.
    """
    centred = rows_ND.astype(np.float64) - rows_ND.mean(0, dtype=np.float64)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(centred), 2))
    places[:, : min(2, len(values))] = (left * values)[:, :2]
    signs = np.sign(places[np.abs(places).argmax(0), [0, 1]])
    total = float((values**2).sum())
    return places * np.where(signs == 0, 1, signs), float((values[:2] ** 2).sum()) / total if total else 1.0


def neighbour_embedding(rows_ND: np.ndarray) -> np.ndarray:
    """Projects N > 3 rows to places (N, 2) by t-SNE with cosine distance; deterministic, from the principal components.

    ValueError without scikit-learn, or if all rows are equal.

    Source: van der Maaten & Hinton 2008; scikit-learn's implementation.
    """
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError:
        use = "pip install scikit-learn, or --method pca"
        raise ValueError(f"--method: needs scikit-learn for tsne; got a Python without it. Use {use}.") from None

    perplexity = min(PERPLEXITY, (len(rows_ND) - 1) / 3)
    start = principal_components(rows_ND)[0]
    spread = start[:, 0].std()
    if not spread > 0:
        use = "other words, or a table that training has changed"
        raise ValueError(f"--method: needs different vectors for tsne; got {len(rows_ND)} equal ones. Use {use}.")
    # The spread of scikit-learn's own start, which fails for rows with one entry.
    start = (start / spread * START_SPREAD).astype(np.float32)
    return TSNE(metric="cosine", init=start, perplexity=perplexity, random_state=1).fit_transform(rows_ND)
