"""Heads that are trained by noise: noise-contrastive estimation and the sampled softmax."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.outputs import NoiseContrastive, OutputLayer, SampledSoftmax

from .. import reference
from .common import COUNTS, MARKS, SIZE, TARGET, features, table

HEADS = [NoiseContrastive, SampledSoftmax]
every_head = pytest.mark.parametrize("kind", HEADS)
shared_or_own = pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])


def head(kind: Any = NoiseContrastive, method: str = "plain", counts: Any = COUNTS, **options: Any) -> Any:
    return kind(table(method), counts, MARKS, **{"samples": 5, **options})


def noise_probabilities(power: float) -> np.ndarray:
    """q by hand: no probability for the marks, a word that does not occur counts once."""
    powers = [0.0 if word in MARKS else max(count, 1) ** power for word, count in enumerate(COUNTS.tolist())]
    return np.array(powers) / sum(powers)


def expected_losses(found: Any, features_ND: Any, noise: Any, method: str) -> np.ndarray:
    """The losses by the papers, word by word, given the noise."""
    q, rows, bias = noise_probabilities(found.power), found.table.weight.detach().numpy(), found.table.bias.tolist()
    rows = rows.copy()
    losses = []
    for index, (h, target) in enumerate(zip(features_ND.detach().numpy(), TARGET.tolist(), strict=True)):
        words = (noise if noise.dim() == 1 else noise[index]).tolist()
        scores = {word: reference.score(method, rows[word], h) + bias[word] for word in {target, *words}}
        if isinstance(found, NoiseContrastive):
            delta = {word: s - found.log_z - math.log(found.samples * q[word]) for word, s in scores.items()}
            is_text = reference.sigmoid(delta[target])
            losses.append(-math.log(is_text) - sum(math.log(1 - reference.sigmoid(delta[word])) for word in words))
        else:
            others = [scores[word] - math.log(found.samples * q[word]) for word in words if word != target]
            p = reference.softmax(np.array([scores[target], *others]))[0]
            losses.append(-math.log(p))
    return np.array(losses)


@pytest.mark.parametrize("method", reference.SCORES)
@shared_or_own
@every_head
def test_losses_are_the_papers(kind: Any, shared: bool, method: str) -> None:
    found = head(kind, method, shared=shared, power=0.75, **({"log_z": 0.5} if kind is NoiseContrastive else {}))
    h = features()
    torch.manual_seed(5)
    noise = found.noise.draw((5,) if shared else (len(TARGET), 5))
    torch.manual_seed(5)
    losses = found.loss(h, TARGET, LossOptions(reduce=False)).loss
    np.testing.assert_allclose(losses.detach(), expected_losses(found, h, noise, method), rtol=1e-10)
    torch.manual_seed(5)
    assert found.loss(h, TARGET).loss.item() == pytest.approx(losses.sum().item(), rel=1e-12)
    assert found.loss(h, TARGET).nll_loss is None


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0])
def test_noise_is_drawn_by_its_probabilities(power: float) -> None:
    found = head(power=power)
    drawn = found.noise.draw((100, 2000))
    assert drawn.shape == (100, 2000)
    frequencies = torch.bincount(drawn.flatten(), minlength=SIZE).double() / drawn.numel()
    q = noise_probabilities(power)
    deviations = np.sqrt(q * (1 - q) / drawn.numel())
    assert (np.abs(frequencies.numpy() - q) <= 5 * deviations).all()  # 0 for the marks
    np.testing.assert_allclose(found.log_expected(drawn, torch.zeros(0).double()).exp(), 5 * q[drawn], rtol=1e-12)


def test_every_random_number_gives_a_word_that_can_be_a_target(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with_mark = (*MARKS, SIZE - 1)
    found = NoiseContrastive(table(), COUNTS, ends_with_mark)
    for number, word in ((0.0, 2), (1.0 - 2**-53, SIZE - 2)):
        monkeypatch.setattr(
            torch, "rand", lambda shape, number=number, **_: torch.full(shape, number, dtype=torch.float64)
        )
        assert found.noise.draw((3,)).tolist() == [word] * 3


@every_head
def test_evaluation_is_exact(kind: Any) -> None:
    found, h = head(kind).eval(), features()
    scores = h @ found.table.weight.t() + found.table.bias
    scores[:, list(MARKS)] = -torch.inf
    torch.testing.assert_close(found.scores(h).log_softmax(1), scores.log_softmax(1))


@every_head
def test_noise_follows_the_seed(kind: Any) -> None:
    found, h, losses = head(kind), features(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(found.loss(h, TARGET).loss.item())
    assert losses[0] == losses[1] != losses[2]


@every_head
def test_raw_scores_are_scores(kind: Any) -> None:
    found, h = head(kind, "distance"), features()
    expected = found.scores(h).gather(1, TARGET.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(OutputLayer(found.table, over=found).raw_scores(h, TARGET), expected)


def test_raw_scores_of_nce_are_divided_by_the_constant() -> None:
    found, h = head(log_z=9.0), features()
    torch.testing.assert_close(found.raw_scores(h, TARGET), found.table.raw_scores(h, TARGET) - 9.0)
