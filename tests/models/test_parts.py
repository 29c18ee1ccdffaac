"""fairseq's attention in our form, beside fairseq's own in float64."""

import copy
from typing import Any

import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

import fairseq_tiedemb.plugin  # noqa: F401
from fairseq_tiedemb.models._parts import Attention

BATCH, WIDTH, HEADS = 6, 64, 4


def theirs_and_ours(dtype: torch.dtype, dropout: float = 0.0, **kind: bool) -> tuple[Any, Any]:
    torch.manual_seed(1)
    theirs = MultiheadAttention(WIDTH, HEADS, dropout=dropout, **kind).to(dtype)
    ours = copy.deepcopy(theirs)
    ours.__class__ = Attention
    return theirs, ours


def case(name: str, length: int, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], dict[str, Any], dict[str, bool]]:
    """Query and key, fairseq's options, and the kind of attention."""
    torch.manual_seed(2)
    query, key = torch.randn(length, BATCH, WIDTH).to(dtype), torch.randn(length + 3, BATCH, WIDTH).to(dtype)
    future = torch.full((length, length), -torch.inf).triu(1).to(dtype)
    padding = torch.zeros(BATCH, length + 3 * (name == "source"), dtype=torch.bool)
    padding[0, -5:] = True
    if name == "source":
        options = {"key_padding_mask": padding, "static_kv": True, "need_weights": True}
        return (query, key), options, {"encoder_decoder_attention": True}
    masks = {"past": {"attn_mask": future}, "padded": {"key_padding_mask": padding}}
    masks["both"] = masks["past"] | masks["padded"]
    return (query,), masks[name] | {"need_weights": False}, {"self_attention": True}


def results(attention: Any, inputs: tuple[Tensor, ...], options: dict[str, Any]) -> list[Tensor]:
    """What is found, its gradients, and the weights, if any."""
    inputs = tuple(each.clone().requires_grad_() for each in inputs)
    found, weights = attention(inputs[0], inputs[-1], inputs[-1], **options)
    (found * torch.linspace(-1, 1, WIDTH).to(found)).sum().backward()
    gradients = [each.grad for each in (*inputs, *attention.parameters())]
    return [each.double() for each in (found, *gradients, weights) if each is not None]


@pytest.mark.parametrize("length", [9, 40])  # the softmax is in float32, or not
@pytest.mark.parametrize("name", ["past", "padded", "both", "source"])
def test_half_precision_is_as_exact_as_fairseqs(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, options, kind = case(name, length, torch.bfloat16)
    theirs, ours = theirs_and_ours(torch.bfloat16, **kind)
    exact_options = {key: each.double() if key == "attn_mask" else each for key, each in options.items()}
    exact = results(copy.deepcopy(theirs).double(), tuple(each.double() for each in inputs), exact_options)
    rounded = results(theirs, inputs, options)
    monkeypatch.setattr(MultiheadAttention, "forward", None)  # ours takes its own way
    found = results(ours, inputs, options)
    assert len(found) == len(exact)
    for one, other, goal in zip(found, rounded, exact, strict=True):
        # The gradient of the keys' bias is 0 but for rounding.
        assert (one - goal).norm() <= 2 * (other - goal).norm() + 1e-2 * goal.norm() + 0.05


@pytest.mark.parametrize("name", ["past", "source"])
def test_dropout_draws_fairseqs_numbers(name: str) -> None:
    inputs, options, kind = case(name, 9, torch.bfloat16)
    drawn = []
    for attention in theirs_and_ours(torch.bfloat16, 0.5, **kind):
        torch.manual_seed(3)
        drawn.append(results(attention, inputs, options)[0])
    assert torch.allclose(*drawn, rtol=0.05, atol=0.02)


def test_a_sentence_of_padding_gives_numbers() -> None:
    _, ours = theirs_and_ours(torch.float16, self_attention=True)
    (query,), options, _ = case("both", 9, torch.float16)
    options["key_padding_mask"][0] = True
    assert all(each.isfinite().all() for each in results(ours, (query,), options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_else_is_fairseqs_bit_for_bit(dtype: torch.dtype) -> None:
    inputs, options, kind = case("source", 9, dtype)
    if dtype == torch.bfloat16:
        options["need_head_weights"] = True
    pairs = zip(*(results(each, inputs, options) for each in theirs_and_ours(dtype, **kind)), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
