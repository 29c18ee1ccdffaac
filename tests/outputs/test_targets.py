"""Targets that are no words: every head and loss refuses them, with one message."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fairseq_tiedemb import LossOptions
from fairseq_tiedemb.outputs import NegativeSampling
from fairseq_tiedemb.outputs.counted import CountedHead

from .common import COUNTS, HEADS, SIZE, TARGET, WIDTH, features, table


def losses(name: str, training: bool) -> list[Callable[[Tensor, Tensor], Any]]:
    """All that takes targets."""
    head = HEADS[name](COUNTS).train(training)
    found = [head.loss, lambda h, target: head.loss(h, target, LossOptions(reduce=False))]
    if name != "negative-sampling":
        found.append(head.log_prob)
    if head.has_raw_scores:
        found.append(head.raw_scores)
    if name == "short-list":
        found.append(lambda _, target: head.tally(target))
    return found


@pytest.mark.parametrize("name", HEADS)
def test_words_out_of_range(name: str) -> None:
    for compute in [*losses(name, training=True), *losses(name, training=False)]:
        compute(features(), TARGET)
        for wrong in (-100, -1, SIZE, SIZE + 40):
            target = TARGET.index_fill(0, torch.tensor(3), wrong)
            with pytest.raises(ValueError, match=rf"target: needs tokens in \[0, {SIZE}\); got {wrong}. Use features"):
                compute(features(), target)


@pytest.mark.parametrize("name", HEADS)
def test_words_of_32_bits(name: str) -> None:
    for compute in [*losses(name, training=True), *losses(name, training=False)]:
        found = []
        for target in (TARGET, TARGET.int()):
            torch.manual_seed(1)  # of noise
            found.append(compute(features(), target))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", HEADS)
def test_targets_of_another_number_or_kind(name: str) -> None:
    for compute in losses(name, training=True):
        with pytest.raises(ValueError, match="target: needs token indices, int64 or int32; got torch.float64"):
            compute(features(), TARGET.double())
    loss = losses(name, training=True)[0]
    with pytest.raises(ValueError, match=r"target: needs shape \(8,\), one token per feature vector; got \(5,\)"):
        loss(features(), TARGET[:5])


@pytest.mark.parametrize("name", HEADS)
def test_features_that_are_no_matrix(name: str) -> None:
    for compute in losses(name, training=True)[: -1 if name == "short-list" else None]:
        for shape in ((1, 1, WIDTH), (8, 8, WIDTH)):
            got = re.escape(f"({shape[0]}, {shape[1]}, ")
            with pytest.raises(ValueError, match=rf"features: needs shape \(N, D\), a row per token; got {got}"):
                compute(torch.ones(shape, dtype=torch.float64), TARGET[: shape[0]])


@pytest.mark.parametrize("name", [name for name, head in HEADS.items() if isinstance(head(COUNTS), CountedHead)])
def test_counts_that_are_none(name: str) -> None:
    for counts, got in ((COUNTS[:-1], r"tensor\(\["), (COUNTS - 1000, r"tensor\(\[-")):
        with pytest.raises(ValueError, match=f"counts: needs one for each of {SIZE} words, none below 0; got {got}"):
            HEADS[name](counts)


@pytest.mark.parametrize("noise_for", ["block", "centre", "pair", "full softmax"])
def test_word2vec(noise_for: str) -> None:
    """Skip-gram predicts several words by a feature; CBOW one, as above."""
    rows = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])

    def loss(target: Tensor) -> Any:
        if noise_for == "full softmax":
            return table().loss_of_sets(features(3), target, rows)
        sampling = NegativeSampling(table(), COUNTS, negatives=3, power=0.75, noise_for=noise_for)
        return sampling.loss_of_sets(features(3), target, rows)

    loss(TARGET)
    for wrong in (-100, -1, SIZE):
        with pytest.raises(ValueError, match=rf"target: needs tokens in \[0, {SIZE}\); got {wrong}"):
            loss(TARGET.index_fill(0, torch.tensor(4), wrong))
