"""Pairs of neighbouring words in a text, drawn anew in every epoch."""

from typing import Any

import numpy as np
import torch
from fairseq.data import FairseqDataset

from ..outputs.pair_steps import STEPS
from ._streams import TokenStream


def keep_probabilities(counts: np.ndarray, subsampling: float) -> np.ndarray:
    """Probability (V,) of keeping a token in subsampling, by word.

        p(w) = min(1, (sqrt(f / s) + 1) * s / f),  f = c(w) / sum_v c(v);  0 for words with count 0

    ``counts`` is c (V,), 0 for left-out words. ``subsampling`` is s; 0 keeps all tokens.

    Source: the code of Mikolov et al. 2013, word2vec.c; the paper's section 2.3 drops with 1 - sqrt(s / f).
    """
    there = counts > 0
    if not subsampling:
        return there.astype(float)
    share = np.where(there, counts, 1) / max(counts.sum(), 1)
    return np.where(there, np.minimum(1.0, (np.sqrt(share / subsampling) + 1.0) * subsampling / share), 0.0)


class WordPairs(FairseqDataset):
    """Dataset of centre words with their contexts; item b is the ready batch b.

    A batch covers whole sentences with at most ``max_tokens`` tokens in total; a longer sentence is cut. Words with
    probability 0 in ``keep`` (V,) are removed, and other tokens are kept with their probability. Every remaining token
    is a centre once. Its half-width is uniform in 1 ... ``window``, and its contexts are the tokens of its sentence
    within that distance, so windows span removed tokens. A generator seeded by (seed, epoch, batch) draws a batch, so
    the batch does not depend on workers or order. Its centres are in the order of ``learn_in_steps``.
    ``predicts_centre`` is True for CBOW, which predicts the centre from its contexts, and False for skip-gram.

    Source: Mikolov et al. 2013 ("Efficient estimation"), section 3.2 (half-widths); word2vec.c (order of the steps).
    """

    def __init__(
        self, stream: TokenStream, keep: np.ndarray, *, window: int, max_tokens: int, seed: int, predicts_centre: bool
    ):
        self.stream, self.keep, self.window, self.seed = stream, keep, window, seed
        self.predicts_centre = predicts_centre
        self.bounds = whole_sentences(stream.ends, max_tokens)
        self.epoch = 1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        words, bounds = words_and_bounds(self.stream, *self.bounds[index : index + 2])
        rng = np.random.default_rng([self.seed, self.epoch, index])
        stays = rng.random(len(words)) < self.keep[words]
        words, bounds = words[stays], np.append(0, stays.cumsum())[bounds]
        half_widths = rng.integers(1, self.window + 1, len(words))
        sizes, own = np.diff(bounds), np.arange(len(words))
        first = np.maximum(own - half_widths, bounds[:-1].repeat(sizes))
        counts = np.minimum(own + half_widths, (bounds[1:] - 1).repeat(sizes)) - first
        # The centres of a step of learning stand side by side in the batch, and apart in the text.
        has_contexts = np.flatnonzero(counts)
        centres_n = np.concatenate([has_contexts[step::STEPS] for step in range(STEPS)])
        counts = counts[centres_n]
        centre_N = np.arange(len(counts)).repeat(counts)
        places = np.arange(len(centre_N)) + (first[centres_n] - counts.cumsum() + counts)[centre_N]
        places += places >= centres_n[centre_N]  # because no word is its own context
        centres, contexts = torch.from_numpy(words[centres_n]), torch.from_numpy(words[places])
        source, target = (contexts, centres) if self.predicts_centre else (centres, contexts)
        return {
            "id": torch.tensor([index]),
            "nsentences": len(centres),
            "ntokens": len(target),
            "net_input": {"src_tokens": source, "centres": torch.from_numpy(centre_N)},
            "target": target,
        }

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        """The single item of a batch; {}, which fairseq skips, for an item without pairs and for no item."""
        return samples[0] if samples and samples[0]["ntokens"] else {}


def whole_sentences(ends: np.ndarray, max_tokens: int) -> list[int]:
    """Boundaries of batches of whole sentences, given their ``ends``; a sentence beyond ``max_tokens`` is cut."""
    bounds = [0]
    while bounds[-1] < ends[-1]:
        reach = bounds[-1] + max_tokens
        last = np.searchsorted(ends, reach, side="right") - 1
        whole = int(ends[last]) if last >= 0 else 0
        bounds.append(whole if whole > bounds[-1] else min(reach, int(ends[-1])))
    return bounds


def words_and_bounds(stream: TokenStream, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [start, stop) of a text; numbers of tokens before each sentence there, and their number in all."""
    inner = stream.ends[np.searchsorted(stream.ends, start, "right") : np.searchsorted(stream.ends, stop)]
    return stream.tokens(start, stop).numpy(), np.concatenate(([start], inner, [stop])) - start
