"""Pairs of words that stand near each other in a text, drawn anew in each epoch."""

from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset

from ._streams import BLOCK, TokenStream


def count_words(stream: TokenStream, size: int, specials: int) -> np.ndarray:
    """How often each word of the dictionary comes in a text, (V,), int64.

    fairseq's dictionaries do not know it of ``</s>`` and ``<unk>``; here they, and fairseq's other symbols, count 0.

    Args:
        stream: the text.
        size: V.
        specials: number of fairseq's symbols, which stand before the words.
    """
    counts = np.zeros(size, np.int64)
    for start in range(0, len(stream), BLOCK):
        counts += np.bincount(stream.tokens(start, min(start + BLOCK, len(stream))).numpy(), minlength=size)
    counts[:specials] = 0
    return counts


def keep_probabilities(counts: np.ndarray, subsampling: float) -> np.ndarray:
    """How probably each token of a word stays in the text.

        p(w) = min(1, (sqrt(f / s) + 1) * s / f),  f = c(w) / sum_v c(v);  0 for words with count 0

    Args:
        counts: c of the words that count, (V,), 0 for all others.
        subsampling: s; 0 keeps all.

    Source: the code of Mikolov et al. 2013, word2vec.c; the paper's section 2.3 has 1 - sqrt(s / f) for what goes.
    """
    there = counts > 0
    if not subsampling:
        return there.astype(float)
    share = np.where(there, counts, 1) / max(counts.sum(), 1)
    return np.where(there, np.minimum(1.0, (np.sqrt(share / subsampling) + 1.0) * subsampling / share), 0.0)


class WordPairs(FairseqDataset):
    """Centre words with the words in their windows, as batches of a text; item b is batch b.

    A batch is the text of whole sentences with at most ``max_tokens`` tokens together; a longer sentence is cut. From
    it the words that do not count are removed, and each other token stays with its probability. Then every token is a
    centre once, with a half-width drawn uniformly from 1 ... ``window``: its contexts are the tokens of its sentence at
    most that far away, so that windows reach over what was removed. All of it is drawn from a generator of the batch's
    own, seeded by (seed, epoch, batch), whoever asks and in whatever order.

    Args:
        stream: the text.
        keep: how probably each token of a word stays, (V,).
        window: the largest half-width.
        max_tokens: tokens of the text in a batch.
        seed: of the draws.
        predicts_centre: whether a centre is predicted from all its contexts, as CBOW does; else they are from it.

    Source: Mikolov et al. 2013 ("Efficient estimation"), section 3.2 (half-widths); word2vec.c (order of the steps).
    """

    def __init__(
        self,
        stream: TokenStream,
        keep: np.ndarray,
        *,
        window: int,
        max_tokens: int,
        seed: int,
        predicts_centre: bool = False,
    ):
        self.stream, self.keep, self.window, self.seed = stream, keep, window, seed
        self.predicts_centre = predicts_centre
        self.bounds = whole_sentences(stream.ends, max_tokens)
        self.epoch = 1

    def set_epoch(self, epoch: int) -> None:
        """Which epoch's pairs are drawn from now on."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def num_tokens(self, index: int) -> int:
        return self.bounds[index + 1] - self.bounds[index]

    def size(self, index: int) -> int:
        return self.num_tokens(index)

    def __getitem__(self, index: int) -> dict[str, Any]:
        words, sentences = words_and_sentences(self.stream, *self.bounds[index : index + 2])
        rng = np.random.default_rng([self.seed, self.epoch, index])
        stays = rng.random(len(words)) < self.keep[words]
        words, sentences = words[stays], sentences[stays]
        half_widths = rng.integers(1, self.window + 1, len(words))
        steps = np.concatenate((np.arange(-self.window, 0), np.arange(1, self.window + 1)))
        places = np.arange(len(words))[:, None] + steps
        inside = (places >= 0) & (places < len(words)) & (np.abs(steps) <= half_widths[:, None])
        places = np.where(inside, places, 0)
        inside &= sentences[places] == sentences[:, None]
        has_contexts = inside.any(1)
        words_n, inside, places = words[has_contexts], inside[has_contexts], places[has_contexts]
        centre_N = np.ascontiguousarray(np.nonzero(inside)[0])
        return self._batch(index, *map(torch.from_numpy, (words_n, words[places[inside]], centre_N)))

    def _batch(
        self, index: int, centres_n: torch.Tensor, contexts_N: torch.Tensor, centre_N: torch.Tensor
    ) -> dict[str, Any]:
        source, target = (contexts_N, centres_n) if self.predicts_centre else (centres_n, contexts_N)
        return {
            "id": torch.tensor([index]),
            "nsentences": len(centres_n),
            "ntokens": len(target),
            "net_input": {"src_tokens": source, "centres": centre_N},
            "target": target,
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """The one item of a batch; nothing, which fairseq skips, for one without pairs, or where there are no more."""
        return samples[0] if samples and samples[0]["ntokens"] else {}


def whole_sentences(ends: np.ndarray, max_tokens: int) -> list[int]:
    """Where batches of whole sentences begin, and the last one ends.

    Args:
        ends: of sentences, rising.
        max_tokens: of a batch; a longer sentence is cut.
    """
    bounds = [0]
    while bounds[-1] < ends[-1]:
        reach = bounds[-1] + max_tokens
        last = np.searchsorted(ends, reach, side="right") - 1
        whole = int(ends[last]) if last >= 0 else 0
        bounds.append(whole if whole > bounds[-1] else min(reach, int(ends[-1])))
    return bounds


def words_and_sentences(stream: TokenStream, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens [start, stop) of a text, and the number of the sentence that each is in, from 0 or 1 on."""
    first = np.searchsorted(stream.ends, start, side="right")
    last = np.searchsorted(stream.ends, stop, side="left")
    begins = np.zeros(stop - start, np.int64)
    np.add.at(begins, stream.ends[first:last] - start, 1)
    return stream.tokens(start, stop).numpy(), np.cumsum(begins)
