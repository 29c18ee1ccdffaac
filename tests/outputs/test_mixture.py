"""The mixture of softmaxes against its equation in float64: values, gradients, chunks."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_tiedemb import LossOptions, SharedEmbedding, loss_by_rows, products, squared_norms
from fairseq_tiedemb.outputs import Mixture
from fairseq_tiedemb.sharing import SHARING_METHODS

from .. import reference
from ..gradients import assert_same_gradients
from ..models.common import grown
from ..test_losses import Products
from .common import SIZE, TARGET, WIDTH, features, table
from .oracle import PAD

K = 3


@pytest.fixture(autouse=True, params=[1, 4])
def small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(products, "EVEN", [(1, request.param)])  # with 4, products have twelve rows
    monkeypatch.setattr(products, "EVEN_ROWS", {torch.float64, torch.float32})
    monkeypatch.setattr(loss_by_rows, "ROWS", 7)  # nine rows of logits, of three words, at a time
    monkeypatch.setattr(squared_norms, "CACHED_ELEMENTS", 70)  # three rows of logits
    return request.param


def head(method: str = "plain") -> Mixture:
    return grown(Mixture(table(method), K).double(), std=0.5)


@pytest.mark.parametrize("reduce", [True, False])
def test_backward_again_gives_the_same(reduce: bool) -> None:
    h, mixture = features(), head()
    loss = mixture.loss(h, TARGET, LossOptions(reduce=reduce)).loss.sum()
    inputs = [h, *mixture.parameters(), mixture.table.weight]
    first, *others = [torch.autograd.grad(loss, inputs, retain_graph=True) for _ in range(3)]
    for each in others:
        torch.testing.assert_close(each, first, rtol=0, atol=0)


def test_weights_of_any_strides() -> None:
    """One parameter for all words, say, expanded."""
    h, target, rows = features().repeat_interleave(K, 0), TARGET, table()
    prior = torch.randn(1, K, dtype=torch.float64).log_softmax(1).requires_grad_()
    results = []
    for each in (prior.expand(len(target), K), prior.repeat(len(target), 1)):
        loss = rows.loss(h, target, log_prior_NK=each).loss
        results.append((loss, *torch.autograd.grad(loss, prior)))
    torch.testing.assert_close(*results)


def test_a_softmax_without_weight_counts_for_nothing() -> None:
    h, rows = features(), table()
    prior = torch.tensor([[0.0, -torch.inf]], dtype=torch.float64).expand(len(TARGET), 2).clone().requires_grad_()
    loss = rows.loss(h.repeat_interleave(2, 0), TARGET, log_prior_NK=prior).loss
    torch.testing.assert_close(loss, rows.loss(h, TARGET).loss)
    [gradient] = torch.autograd.grad(loss, prior)
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 0.0]], dtype=torch.float64).expand(len(TARGET), 2))


def test_a_mixture_of_one_takes_no_kernel_of_a_single_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weight would be left out."""
    h, rows, prior = features(), table(), torch.full((len(TARGET), 1), -2.0, dtype=torch.float64)
    monkeypatch.setattr(loss_by_rows, "kernel_for", lambda scores: pytest.fail("a kernel was asked for"))
    found = rows.loss(h, TARGET, log_prior_NK=prior).loss
    expected = -rows.scores(h).log_softmax(1).gather(1, TARGET.unsqueeze(1)).sum() + 2 * len(TARGET)
    torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("error:An output with one or more elements was resized")
def test_filled_products_of_a_chunk_fit_its_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_by_rows, "ROWS", 40)
    monkeypatch.setattr(products, "EVEN", [(1, 16)])  # 48 rows of logits; a fourth of 140 rows is filled to 48
    found, mixture = table(), Mixture(table(), 7).double()
    h, target = torch.randn(20, found.embedding_dim, dtype=torch.float64), TARGET.repeat(3)[:20]
    expected = -mixture.scores(h).gather(1, target.unsqueeze(1)).sum()
    torch.testing.assert_close(mixture.loss(h, target).loss, expected)


@pytest.mark.parametrize("method", reference.SCORES)
def test_probabilities_are_those_of_the_equation(method: str) -> None:
    found, h = head(method), features()
    weights = {name: each.detach().numpy() for name, each in found.named_parameters()}
    rows, bias = found.table.weight.detach().numpy(), found.table.bias.detach().numpy()
    log_p = found.scores(h).detach().numpy()
    for row, feature in zip(log_p, h.detach().numpy(), strict=True):
        parts = np.tanh(weights["latent.weight"] @ feature + weights["latent.bias"]).reshape(K, WIDTH)
        prior = reference.softmax(weights["prior.weight"] @ feature)
        norms = [1.0 if word == PAD else reference.norm(rows[word]) for word in range(SIZE)]
        scores = [[reference.SCORES[method](w @ part, n) for w, n in zip(rows, norms, strict=True)] for part in parts]
        expected = sum(pi * reference.softmax(np.array(each) + bias) for pi, each in zip(prior, scores, strict=True))
        np.testing.assert_allclose(np.exp(row), expected, rtol=1e-9)


@pytest.mark.parametrize("method", SHARING_METHODS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_scores_with_its_gradients(method: str, smoothing: float) -> None:
    found, h, weights = head(method), features(), torch.rand(len(TARGET), dtype=torch.float64)
    wanted = [h, *found.parameters(), *(each for name, each in found.table.named_parameters() if "radius" not in name)]
    log_p = found.scores(h)
    each = torch.stack([label_smoothed_nll_loss(log_p[n : n + 1], TARGET[n : n + 1], smoothing)[0] for n in range(8)])
    for reduce, expected in ((True, each.sum()), (False, (each * weights).sum())):
        result = found.loss(h, TARGET, LossOptions(smoothing, reduce=reduce))
        loss = result.loss if reduce else (result.loss * weights).sum()
        torch.testing.assert_close(result.nll_loss.sum(), F.nll_loss(log_p, TARGET, reduction="sum"))
        assert_same_gradients(loss, expected, wanted)


def test_never_holds_all_scores(small_chunks: int) -> None:
    found, h = Mixture(SharedEmbedding(300, 2, PAD), K), torch.randn(40, 2, requires_grad=True)
    with Products() as made:
        found.loss(h, torch.full((40,), 4), LossOptions(0.1)).loss.backward()
    assert made.largest == (9 if small_chunks == 1 else 12) * 300
