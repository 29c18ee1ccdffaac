"""Targets that are no words: every head and loss refuses them, with one message."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor

from fairseq_tiedemb import LossOptions
from fairseq_tiedemb.models._output_layer import HEADS
from fairseq_tiedemb.models.word2vec import _losses_of_sets
from fairseq_tiedemb.outputs import Bands, ClassBased, NoiseContrastive, SampledSoftmax, ShortList, Tree
from fairseq_tiedemb.outputs.negative_sampling import NegativeSampling

from .common import COUNTS, MARKS, SIZE, TARGET, WIDTH, features, table

UNKNOWN = 3
LAYERS: dict[str, Callable[[], Any]] = {
    "softmax": table,
    "classes": lambda: ClassBased(table(), COUNTS, MARKS, classes=4).double(),
    "short-list": lambda: ShortList(table(), COUNTS, MARKS, length=5, unknown=UNKNOWN, size=SIZE),
    "nce": lambda: NoiseContrastive(table(), COUNTS, MARKS, samples=3),
    "nce, own noise": lambda: NoiseContrastive(table(), COUNTS, MARKS, samples=3, shared=False),
    "sampled": lambda: SampledSoftmax(table(), COUNTS, MARKS, samples=3),
    "tree": lambda: Tree(SIZE, WIDTH, COUNTS, MARKS).double(),
    "bands": lambda: Bands(AdaptiveSoftmax(SIZE, WIDTH, [5, 9], 0.0, factor=1.0).double()),
}


def test_all_heads_are_here() -> None:
    assert HEADS.keys() < LAYERS.keys()


def losses(name: str, training: bool) -> list[Callable[[Tensor, Tensor], Any]]:
    """All that takes targets."""
    head = LAYERS[name]().train(training)
    found = [head.loss, head.log_prob, lambda h, target: head.loss(h, target, LossOptions(reduce=False))]
    if hasattr(head, "raw_scores"):
        found.append(head.raw_scores)
    if name == "short-list":
        found.append(lambda _, target: head.tally(target))
    return found


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("wrong", [-100, -1, SIZE, SIZE + 40])
@pytest.mark.parametrize("name", LAYERS)
def test_words_out_of_range(name: str, wrong: int, training: bool) -> None:
    target = TARGET.clone()
    target[3] = wrong
    for compute in losses(name, training):
        compute(features(), TARGET)
        with pytest.raises(ValueError, match=rf"target: needs words in \[0, {SIZE}\); got {wrong}. Use features and"):
            compute(features(), target)


@pytest.mark.parametrize("name", LAYERS)
def test_targets_of_another_number_or_kind(name: str) -> None:
    for compute in losses(name, training=True):
        with pytest.raises(ValueError, match="target: needs whole numbers, the words; got torch.float64"):
            compute(features(), TARGET.double())
    loss = losses(name, training=True)[0]
    with pytest.raises(ValueError, match=r"target: needs shape \(8,\), a word for each feature; got \(5,\)"):
        loss(features(), TARGET[:5])


@pytest.mark.parametrize("wrong", [-100, -1, SIZE])
@pytest.mark.parametrize("noise_for", ["block", "centre", "pair", "full softmax"])
def test_word2vec(noise_for: str, wrong: int) -> None:
    """Skip-gram predicts several words by a feature; CBOW one, as above."""
    rows = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])

    def loss(target: Tensor, given: Tensor | None) -> Any:
        if noise_for == "full softmax":
            return _losses_of_sets(table(), features(3), target, rows)
        sampling = NegativeSampling(table(), COUNTS, negatives=3, power=0.75, noise_for=noise_for)
        return sampling.loss(features(8 if given is None else 3), target, rows_N=given)

    target = TARGET.clone()
    target[4] = wrong
    for given in (None, rows):
        loss(TARGET, given)
        with pytest.raises(ValueError, match=rf"target: needs words in \[0, {SIZE}\); got {wrong}"):
            loss(target, given)
