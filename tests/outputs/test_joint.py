"""The joint space against its equation in float64, and what it refuses."""

import numpy as np
import pytest

from fairseq_tiedemb import SharedEmbedding
from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.outputs import JointSpace

from ..models.common import grown
from .common import features, table
from .oracle import PAD


def test_logits_are_those_of_the_equation() -> None:
    head, h = grown(JointSpace(table(), 4).double(), std=0.5), features()
    weights = {name: each.detach().numpy() for name, each in head.named_parameters()}
    rows, bias = head.table.weight.detach().numpy(), head.table.bias.detach().numpy()
    for row, feature in zip(head.scores(h).detach().numpy(), h.detach().numpy(), strict=True):
        right = np.tanh(weights["of_features.weight"] @ feature + weights["of_features.bias"])
        left = [np.tanh(weights["of_words.weight"] @ w + weights["of_words.bias"]) for w in rows]
        np.testing.assert_allclose(row, np.array([word @ right for word in left]) + bias, rtol=1e-12)


def test_a_method_or_a_scale_that_the_map_would_undo_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--sharing-method: needs plain with --output-layer joint.*; got cosine\."):
        JointSpace(table("cosine"), 4)
    for constants, message in (
        (Constants(logit_scale=0.5), r"--logit-scale: needs another output layer .*; got 0\.5\."),
        (Constants(logit_soft_cap=3.0), r"--logit-soft-cap: needs another output layer .*; got 3\.0\."),
    ):
        with pytest.raises(ValueError, match=message):
            JointSpace(SharedEmbedding(9, 4, PAD, constants=constants), 4)
    JointSpace(SharedEmbedding(9, 4, PAD, constants=Constants(embedding_scale=2.0)), 4)
