"""The augmented loss against its equation, and what refuses it."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.losses import LossOptions, output_loss
from fairseq_tiedemb.outputs import OutputLayer

from . import reference
from .gradients import assert_same_gradients
from .test_losses import _small_chunks as _small_chunks
from .test_losses import both_ways, case, plain_loss
from .test_losses import by_rows_and_by_words as by_rows_and_by_words


@both_ways
@pytest.mark.parametrize(("method", "reduce"), [("plain", True), ("distance", True), ("fixnorm", False)])
def test_augmented_loss_is_that_of_the_equation(method: str, reduce: bool) -> None:
    table, features, target = case(method, bias=True, embeds=True)
    table.constants = Constants(logit_soft_cap=2.0)
    without = copy.deepcopy(table)  # soft targets know no bias and no cap
    without.constants = Constants()
    nn.init.zeros_(without.bias)
    scores, similar = table.scores(features), without.scores(without.embed(target)).detach()
    options = LossOptions(0.1, reduce=reduce, augmented_loss=0.7, augmented_temperature=1.6)
    found = table.loss(features, target, options).loss
    pairs = zip(scores.detach().numpy(), similar.numpy(), strict=True)
    parts = [reference.augmented_loss(*each, 0.7, 1.6) for each in pairs]
    extra = found - table.loss(features, target, LossOptions(0.1, reduce=reduce)).loss
    np.testing.assert_allclose(extra.detach(), sum(parts) if reduce else parts, rtol=1e-9)
    divergence = F.kl_div((scores / 1.6).log_softmax(-1), (similar / 1.6).softmax(-1), reduction="sum")
    inputs = [features, *(each for name, each in table.named_parameters() if "radius" not in name)]
    assert_same_gradients(found.sum(), plain_loss(table, features, target, 0.1) + 0.7 * divergence, inputs)


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({"augmented_loss": -1.0}, "--augmented-loss: needs a finite value, 0 or more; got -1.0"),
        ({"augmented_loss": 1.0, "augmented_temperature": 0.0}, "--augmented-temperature: .* positive, .*; got 0.0"),
        ({"augmented_temperature": 2.0}, "--augmented-temperature: needs --augmented-loss; got 2.0 alone"),
        ({"augmented_loss": 0.5}, "--augmented-loss: needs one table for input and output; got 0.5 with"),
    ],
)
def test_augmented_loss_that_cannot_be_is_refused(options: dict[str, float], got: str) -> None:
    table, _, _ = case("plain", bias=True)
    with pytest.raises(ValueError, match=got):
        OutputLayer(table).check_training(LossOptions(**options))
    with pytest.raises(ValueError, match="--augmented-loss: needs features of the soft targets; got 0.5 without"):
        output_loss(torch.ones(1, 5), torch.ones(3, 5), torch.tensor([2]), options=LossOptions(augmented_loss=0.5))
