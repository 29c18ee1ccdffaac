"""Dropout is torch's. Variational masks: what they share over time and between equal words, and do not."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_tiedemb.modules import dropout as module
from fairseq_tiedemb.modules.dropout import VariationalDropout, WordDropout, draw_, dropout, variational_mask, word_mask

WIDE = torch.randn(30, 40, 50)  # larger than a block, and no multiple of it


@pytest.mark.parametrize("p", [0.0, 1e-9, 0.3, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "arranged",
    [
        lambda x: x,
        lambda x: x.transpose(0, 2),
        lambda x: x[:, ::2],
        lambda x: x[:1].expand(30, -1, -1),
        lambda x: x[:0],
    ],
    ids=["contiguous", "transposed", "strided", "expanded", "empty"],
)
def test_dropout_is_torchs_and_leaves_its_generator_where_torch_does(p: float, dtype: torch.dtype, arranged) -> None:
    def seen(function) -> list[Tensor]:
        x = arranged(WIDE.to(dtype)).detach().requires_grad_()
        torch.manual_seed(7)
        y = function(x, p)
        y.backward(torch.ones_like(y) * 3)
        inplace = x.detach().clone()
        assert function(inplace, p, inplace=True) is inplace
        return [y, x.grad, inplace, torch.get_rng_state()]

    for ours, theirs in zip(seen(dropout), seen(F.dropout), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [2**-16, 0.1, 0.5, 0.7, 1 - 2**-16])
def test_draws_have_their_probability_and_are_independent(p: float, dtype: torch.dtype) -> None:
    """Also on processors on which `dropout` leaves them to torch, where others would go unseen."""
    torch.manual_seed(4)
    drawn = draw_(torch.empty(2**20, dtype=dtype), p).double()
    assert set(drawn.tolist()) == {0, 1}
    spread = math.sqrt(p * (1 - p) / len(drawn))
    assert abs(drawn.mean().item() - p) < 5 * spread
    for apart in (1, 2, 3, 4, 7):  # four numbers in half precision come from one word of 64 bits
        both = (drawn[:-apart] * drawn[apart:]).mean().item()
        assert abs(both - drawn.mean().item() ** 2) < 5 * p * math.sqrt(1 / len(drawn)), apart


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("arranged", [lambda x: x, lambda x: x.transpose(0, 2)], ids=["contiguous", "transposed"])
def test_dropout_in_half_precision(arranged, dtype: torch.dtype) -> None:
    x = arranged(WIDE.to(dtype)).detach().requires_grad_()
    torch.manual_seed(7)
    y = dropout(x, 0.3)
    y.sum().backward()
    is_kept = x.grad != 0
    assert torch.equal(x.grad[is_kept], torch.full_like(x.grad[is_kept], 1).div_(0.7))
    assert torch.equal(y, x.detach() * x.grad)
    assert is_kept.double().mean().item() == pytest.approx(0.7, abs=0.01)  # five standard deviations
    torch.manual_seed(7)
    inplace = x.detach().clone()
    assert dropout(inplace, 0.3, inplace=True) is inplace
    assert torch.equal(inplace, y)


@pytest.mark.parametrize("p", [0.0, 1e-9, 1 - 1e-9, 1.0])
def test_rates_beyond_sixteen_bits_are_torchs(p: float) -> None:
    torch.manual_seed(7)
    ours = dropout(WIDE.bfloat16(), p)
    torch.manual_seed(7)
    torch.testing.assert_close(ours, F.dropout(WIDE.bfloat16(), p), rtol=0, atol=0, equal_nan=True)


def test_dropout_is_torchs_where_torch_draws_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processors for which torch's build calls MKL's generator, imitated by other draws of ours."""
    monkeypatch.setattr(module, "draw_", lambda mask, p, generator=None: draw_(mask, p, generator).sub_(1).abs_())
    monkeypatch.setattr(module, "DRAWS_LIKE_TORCH", module._draws_like_torch())
    torch.manual_seed(7)
    ours = dropout(WIDE, 0.3)
    torch.manual_seed(7)
    assert torch.equal(ours, F.dropout(WIDE, 0.3))


def test_mask_is_scaled_so_that_its_mean_is_one() -> None:
    mask = variational_mask(0.3, 20, 500, like=torch.zeros(1, dtype=torch.float64))
    assert mask.dtype == torch.float64
    kept = mask[mask != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.7))
    assert len(kept) / mask.numel() == pytest.approx(0.7, abs=0.03)  # 6 standard deviations


def test_all_steps_of_a_row_have_one_mask_and_rows_have_their_own() -> None:
    dropout = VariationalDropout(0.5)
    masked = dropout(torch.ones(7, 3, 50))
    assert (masked == masked[:1]).all()
    assert not (masked[0, 0] == masked[0, 1]).all()
    assert not (dropout(torch.ones(7, 3, 50)) == masked).all()


def test_equal_words_of_a_row_share_their_fate() -> None:
    rows = [[10 * row + word for word in torch.randint(6, (30,)).tolist()] for row in range(40)]
    mask = word_mask(torch.tensor(rows), 0.5, like=torch.zeros(1))
    assert mask.shape == (40, 30, 1)
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    dropped = set()
    for row, factors in zip(rows, mask.squeeze(2).tolist(), strict=True):
        fates = dict(zip(row, factors, strict=True))
        assert [fates[word] for word in row] == factors
        dropped.add(frozenset(word % 10 for word, factor in fates.items() if factor == 0))
    assert len(dropped) > 10  # words and rows are independent: 64 sets are possible


def test_word_types_are_dropped_with_the_given_probability_however_often_they_occur() -> None:
    tokens = torch.tensor([[1, 2, 1, 1, 1]]).expand(20000, -1)
    kept = (word_mask(tokens, 0.3, like=torch.zeros(1)) != 0).float().mean((0, 2))
    torch.testing.assert_close(kept, torch.full((5,), 0.7), rtol=0.0, atol=0.02)  # 6 standard deviations
    assert kept[0] != kept[1]


def test_word_dropout_zeroes_whole_vectors() -> None:
    embedded, tokens = torch.rand(4, 9, 5) + 1, torch.randint(4, (4, 9))
    masked = WordDropout(0.5)(embedded, tokens)
    zero = (masked == 0).all(2)
    assert zero.any()
    torch.testing.assert_close(masked, torch.where(zero.unsqueeze(2), 0.0, 2 * embedded))


def test_evaluation_and_probability_zero_are_the_identity_and_draw_nothing() -> None:
    features, tokens = torch.randn(3, 4, 5), torch.randint(4, (3, 4))
    before = torch.get_rng_state()
    assert VariationalDropout(0.5).eval()(features) is features
    assert VariationalDropout(0.0)(features) is features
    assert WordDropout(0.5).eval()(features, tokens) is features
    assert WordDropout(0.0)(features, tokens) is features
    assert torch.equal(torch.get_rng_state(), before)
