"""The lean loss against the plain computation: values, gradients, half precision, memory's shape."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor

from fairseq_tiedemb import output_loss as module
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.output_loss import output_loss
from fairseq_tiedemb.sharing import SHARING_METHODS

from . import reference

every_method = pytest.mark.parametrize("method", SHARING_METHODS)
smoothings = pytest.mark.parametrize("epsilon", [0.0, 0.1])


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS", 3)  # seven words in three chunks, the last one short


def plain_loss(table: SharedEmbedding, features: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    return label_smoothed_nll_loss(F.log_softmax(table.scores(features), -1), target, epsilon)


def case(method: str, bias: bool, dtype: torch.dtype = torch.float64) -> tuple[SharedEmbedding, Tensor, Tensor]:
    table = SharedEmbedding(11, 5, 1, method=method, bias=bias)
    with torch.no_grad():
        table.weight.mul_(torch.rand(11, 1) + 0.5)
    features = torch.randn(7, 5, dtype=torch.float64)
    return table.to(dtype), features.to(dtype).requires_grad_(), torch.tensor([2, 5, 5, 0, 10, 3, 9])


@every_method
@smoothings
def test_values_against_the_equations(method: str, epsilon: float) -> None:
    table, features, target = case(method, bias=True)
    scores = table.scores(features).detach().numpy()
    pairs = [
        reference.smoothed_cross_entropy(row, int(word), epsilon) for row, word in zip(scores, target, strict=True)
    ]
    result = table.loss(features, target, label_smoothing=epsilon)
    np.testing.assert_allclose(result.loss.item(), sum(loss for loss, _ in pairs), rtol=1e-12)
    np.testing.assert_allclose(result.nll_loss.item(), sum(nll for _, nll in pairs), rtol=1e-12)
    assert not result.nll_loss.requires_grad


@every_method
@smoothings
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("factor", [1.0, 0.125])
def test_gradients_are_those_of_the_plain_computation(method: str, epsilon: float, bias: bool, factor: float) -> None:
    table, features, target = case(method, bias)
    inputs = [features, *table.parameters()]
    expected = torch.autograd.grad(plain_loss(table, features, target, epsilon)[0] * factor, inputs)
    found = torch.autograd.grad(table.loss(features, target, label_smoothing=epsilon).loss * factor, inputs)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_method
def test_half_precision_is_as_exact_as_the_plain_computation(method: str, dtype: torch.dtype) -> None:
    exact, features, target = case(method, bias=True)
    half = SharedEmbedding(11, 5, 1, method=method, bias=True).to(dtype)
    half.load_state_dict(exact.state_dict())
    half_features = features.detach().to(dtype).requires_grad_()
    truth = torch.autograd.grad(plain_loss(exact, features, target, 0.1)[0], exact.weight)[0]
    scores = half.scores(half_features)
    theirs = label_smoothed_nll_loss(F.log_softmax(scores.float(), -1), target, 0.1)[0]
    their_error = (torch.autograd.grad(theirs, half.weight)[0].double() - truth).abs().max()
    ours = torch.autograd.grad(half.loss(half_features, target, label_smoothing=0.1).loss, half.weight)[0]
    assert (ours.double() - truth).abs().max() <= their_error + 4 * torch.finfo(dtype).eps


def test_no_gradients_where_none_are_wanted() -> None:
    table, features, target = case("cosine", bias=True)
    with torch.no_grad():
        result = table.loss(features, target)
    assert not result.loss.requires_grad


def test_a_frozen_table_leaves_the_features_their_gradient() -> None:
    table, features, target = case("cosine", bias=False)
    expected = torch.autograd.grad(plain_loss(table, features, target, 0.0)[0], features)[0]
    table.requires_grad_(False)
    torch.testing.assert_close(torch.autograd.grad(table.loss(features, target).loss, features)[0], expected)


def test_backward_twice_gives_the_same() -> None:
    table, features, target = case("plain", bias=True)
    loss = table.loss(features, target).loss
    (loss * 2).backward(retain_graph=True)
    once = table.weight.grad.clone()
    table.weight.grad = None
    (loss * 2).backward()
    torch.testing.assert_close(table.weight.grad, once)


def test_never_holds_all_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    table, features, target = case("cosine", bias=True)
    sizes = []
    scores = module._ChunkedLoss._scores
    monkeypatch.setattr(module._ChunkedLoss, "_scores", lambda parts, h: sizes.append(len(h)) or scores(parts, h))
    table.loss(features, target)
    assert sizes == [3, 3, 1]


def test_no_words_cost_nothing() -> None:
    table, features, target = case("plain", bias=True)
    result = table.loss(features[:0], target[:0])
    result.loss.backward()
    assert result.loss.item() == 0
    assert table.weight.grad.abs().sum() == 0


@pytest.mark.parametrize("epsilon", [-0.1, 1.0])
def test_smoothing_out_of_range_is_refused(epsilon: float) -> None:
    table, features, target = case("plain", bias=False)
    with pytest.raises(ValueError, match=rf"--label-smoothing: needs a value in \[0, 1\); got {epsilon}"):
        output_loss(features, table.weight, target, label_smoothing=epsilon)
