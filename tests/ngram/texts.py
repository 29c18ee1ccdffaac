"""Small texts for models of n-grams, their histories, and what a model says after one."""

import random
from pathlib import Path

import numpy as np

from fairseq_tiedemb.ngram import BOS, EOS, BackoffModel, Vocabulary

Gram = tuple[str, ...]


def random_text(seed: int, sentences: int = 60, words: str = "abcdefghijklm") -> str:
    """Few words, some much more frequent than others, sentences from empty to longer than any order tested."""
    rng = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return "".join(" ".join(rng.choices(words, weights, k=rng.randint(0, 9))) + "\n" for _ in range(sentences))


def read_text(folder: Path, text: str, vocabulary: Vocabulary | None = None) -> tuple[Vocabulary, np.ndarray]:
    """The indices of a text, by a vocabulary that it makes unless there is one."""
    (folder / "train.txt").write_text(text)
    vocabulary = Vocabulary() if vocabulary is None else vocabulary
    tokens = vocabulary.read([folder / "train.txt"], flag="TRAIN")
    vocabulary.close()
    return vocabulary, tokens


def histories(text: str, order: int) -> list[Gram]:
    """Every history of order - 1 words or from <s> on that was seen, and as many at random, most of them not seen."""
    sentences = [("<s>", *line.split(), "</s>") for line in text.splitlines()]
    seen = {s[max(0, i - order + 1) : i] for s in sentences for i in range(1, len(s))}
    rng = random.Random(2)
    words = sorted({word for sentence in sentences for word in sentence[1:-1]})
    return sorted(seen) + [tuple(rng.choices(words, k=order - 1)) for _ in seen]


def distribution(model: BackoffModel, vocabulary: Vocabulary, history: Gram) -> dict[str, float]:
    """p(w | history) of every word, as the last words of as many sequences."""
    index = {"<s>": BOS, "</s>": EOS, **vocabulary}
    words = [word for word in index if word != "<s>"]
    tokens = np.array([[index[word] for word in (*history, last)] for last in words], dtype=np.int32)
    return dict(zip(words, model.probabilities(tokens.ravel()).reshape(tokens.shape)[:, -1].tolist(), strict=True))
