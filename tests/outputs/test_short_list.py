"""The short-list against its equation in float64, its two perplexities, and checkpoints."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fairseq_tiedemb import LossOptions, SharedEmbedding
from fairseq_tiedemb.outputs import OutputLayer, ShortList

from .. import reference
from ..gradients import assert_same_gradients
from .oracle import scores

V, D, N = 14, 5, 9
MARKS, UNK = (0, 1), 3
#                                 the 4 most frequent, but for <unk>
COUNTS = torch.tensor([0, 0, 30, 40, 50, 5, 33, 20, 14, 20, 9, 4, 1, 0])
LISTED = [2, 3, 4, 6, 7]
double = {"dtype": torch.float64}


def build(method: str = "plain", *, of_the_list: bool = False, counts: Tensor | None = COUNTS, length: int = 4, **how):
    """A table of all words, as a tied one is, or one of the list's."""
    table = SharedEmbedding(length + 1 if of_the_list else V, D, None if of_the_list else 1, method=method, bias=True)
    head = ShortList(table.double(), counts, MARKS, length=length, unknown=UNK, size=V, **how)
    for parameter in table.parameters():
        nn.init.normal_(parameter)
    return table, head


def expected_log_prob(method: str, table: SharedEmbedding, features: Tensor, uniform: bool = False) -> Tensor:
    """(N, V), word by word."""
    counts = [1] * V if uniform else [max(int(count), 1) for count in COUNTS]
    if len(table.weight) == V:
        of_list = scores(method, table.weight, table.bias, features)[:, LISTED]
    else:  # no row is the padding's: the row of that number gets another
        rows, bias = torch.cat((torch.ones(2, D, **double), table.weight)), torch.cat((torch.ones(2), table.bias))
        of_list = scores(method, rows, bias.double(), features)[:, 2:]
    of_list = of_list - of_list.logsumexp(1, keepdim=True)
    outside = [word for word in range(2, V) if word not in LISTED or word == UNK]
    total = sum(counts[word] for word in outside)
    columns = []
    for word in range(V):
        if word in MARKS:
            columns.append(torch.full((len(features),), -math.inf, **double))
        elif word in outside:
            columns.append(of_list[:, LISTED.index(UNK)] + math.log(counts[word] / total))
        else:
            columns.append(of_list[:, LISTED.index(word)])
    return torch.stack(columns, 1)


@pytest.mark.parametrize("method", reference.SCORES)
@pytest.mark.parametrize(("of_the_list", "uniform"), [(False, False), (True, False), (False, True)])
def test_probabilities_and_gradients(method: str, of_the_list: bool, uniform: bool) -> None:
    table, head = build(method, of_the_list=of_the_list, uniform=uniform)
    assert head.listed.tolist() == LISTED
    features = torch.randn(N, D, **double, requires_grad=True)
    target = torch.tensor([2, 3, 4, 5, 13, 13, 7, 12, 6])
    expected = expected_log_prob(method, table, features, uniform)
    torch.testing.assert_close(expected.exp().sum(1), torch.ones(N, **double))
    picked = expected.gather(1, target.unsqueeze(1)).squeeze(1)
    weights, loss = torch.rand(N, **double), head.loss(features, target, LossOptions(reduce=False)).loss
    assert_same_gradients(loss @ weights, -picked @ weights, [features, *table.parameters()])
    torch.testing.assert_close(head.scores(features), expected)


def test_a_table_of_the_list_scales_its_own_words() -> None:
    table, head = build("scaled-words", of_the_list=True)
    features = torch.randn(N, D, **double)
    torch.testing.assert_close(head.rows().scores(features), table.scores(features))


def test_training_is_that_of_a_text_with_unk_in_the_place_of_words_outside() -> None:
    table, head = build()
    features, target = torch.randn(N, D, **double), torch.randint(2, V, (N,))
    outside = torch.tensor([int(word) not in LISTED for word in target])
    gradients = [
        torch.autograd.grad(head.loss(features, words).loss, table.weight)[0]
        for words in (target, target.masked_fill(outside, UNK))
    ]
    torch.testing.assert_close(*gradients)
    assert not gradients[0][[each for each in range(V) if each not in LISTED]].any()


def test_both_perplexities() -> None:
    _, head = build()
    features, target = torch.randn(N, D, **double), torch.tensor([2, 3, 4, 5, 13, 13, 7, 12, 6])
    tally = head.tally(target)
    assert tally["share:outside"] == 5  # with the text's own <unk>
    of_list = head.rows().scores(features).log_softmax(1)
    places = [LISTED.index(word if word in LISTED else UNK) for word in target.tolist()]
    as_printed = -sum(of_list[row, place].item() for row, place in enumerate(places))
    assert head.loss(features, target).nll_loss.item() - tally["nll:as_printed"].item() == pytest.approx(as_printed)


def test_z_loss_is_of_the_list_and_label_smoothing_is_refused() -> None:
    _, head = build()
    arguments = torch.randn(N, D, **double), torch.randint(2, V, (N,))
    log_z = head.rows().scores(arguments[0]).logsumexp(1)
    found, plain = head.loss(*arguments, LossOptions(z_loss=0.5)), head.loss(*arguments)
    torch.testing.assert_close(found.loss, plain.loss + 0.5 * log_z.square().sum())
    torch.testing.assert_close(found.nll_loss, plain.nll_loss)
    with pytest.raises(ValueError, match="--label-smoothing: needs 0 with --output-layer short-list; got 0.1"):
        head.loss(*arguments, LossOptions(label_smoothing=0.1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_shares_stay_exact_when_the_model_is_cast(dtype: torch.dtype) -> None:
    _, head = build()
    outside = head.place_of == head.place_of[UNK]
    assert head.log_share[outside].exp().sum().item() == pytest.approx(1.0, abs=1e-12)
    expected = head.log_share.clone()
    head.to(dtype)
    torch.testing.assert_close(head.log_share, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("length", "of_the_list"), [(0, False), (12, False), (12, True), (-3, False)])
def test_impossible_lengths_are_refused(length: int, of_the_list: bool) -> None:
    with pytest.raises(ValueError, match=f"--short-list: needs 1 to 11 words, .* got {length}. Use 2000"):
        build(length=length, of_the_list=of_the_list)


def test_the_longest_list_is_the_full_softmax_without_marks() -> None:
    table, head = build(length=11)
    features = torch.randn(N, D, **double)
    whole = scores("plain", table.weight, table.bias, features)
    whole[:, :2] = -math.inf
    expected = whole.log_softmax(1)
    np.testing.assert_allclose(head.scores(features).detach(), expected.detach())


def layer(*, tied: bool, counts: Tensor | None = COUNTS) -> OutputLayer:
    table, head = build(of_the_list=not tied, counts=counts)
    return OutputLayer(table, borrowed=tied, over=head)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("counts", [None, COUNTS.flip(0)])
def test_the_list_comes_from_the_checkpoint(tied: bool, counts: Tensor | None) -> None:
    trained, other = layer(tied=tied), layer(tied=tied, counts=counts)
    state = copy.deepcopy(trained.state_dict())
    assert sorted(state) == ["bias", "over.counts", "over.listed", "weight"]
    assert len(state["weight"]) == (V if tied else 5)
    if tied:
        other.table.load_state_dict({key: state[key] for key in ("weight", "bias")})
    other.load_state_dict(state)
    features = torch.randn(N, D, **double)
    torch.testing.assert_close(other.scores(features), trained.scores(features))
