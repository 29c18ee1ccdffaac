"""Attention and the conditional layer: equations, gradients, beams that share a sentence."""

import math

import numpy as np
import pytest
import torch

from fairseq_tiedemb import products
from fairseq_tiedemb.modules import attention, cells
from fairseq_tiedemb.modules.attention import Source, attend, powers
from fairseq_tiedemb.modules.cells import CELLS
from fairseq_tiedemb.modules.conditional_cell import ConditionalLayer

from .. import reference


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", 20)  # one sentence at a time


every_cell = pytest.mark.parametrize("cell", CELLS)


def a_source(sentences: int, length: int, width: int) -> Source:
    padding = torch.zeros(sentences, length, dtype=torch.bool)
    padding[0, -2:] = True
    return Source(
        torch.randn(sentences, length, width, dtype=torch.float64, requires_grad=True),
        torch.randn(sentences, length, width, dtype=torch.float64, requires_grad=True),
        padding,
    )


def with_powers(source: Source) -> Source:
    return source._replace(keys_nSA=powers(source.keys_nSA))


@torch.no_grad()
def test_attention_is_that_of_the_paper() -> None:
    source, query, vector = a_source(2, 5, 4), torch.randn(2, 4).double(), torch.randn(4).double()
    weights, contexts = attend(with_powers(source), powers(2 * query), vector)
    for row in range(2):
        length = 5 - int(source.padding_nS[row].sum())
        annotations, keys = (part[row, :length].detach().numpy() for part in source[:2])
        expected, context = reference.attention(query[row].numpy(), keys / 2, annotations, vector.numpy(), 0.7)
        np.testing.assert_allclose(weights[row, :length].detach(), expected, rtol=1e-10)
        assert weights[row, length:].abs().sum() == 0
        np.testing.assert_allclose(contexts[row].detach(), context, rtol=1e-10)


@torch.no_grad()
def test_large_queries_and_keys_are_as_exact_as_small_ones() -> None:
    """They cancel, or leave the tanh at its ends; beyond 40 they are finite."""
    keys, query, vector = torch.randn(2, 5, 100), torch.randn(2, 100), torch.randn(100)
    shift = torch.linspace(-35, 35, 100)
    for keys_nSA, query_BA in ((keys + shift, query - shift), (keys + shift, query + shift), (keys - 35, query)):
        expected = torch.softmax(torch.tanh(keys_nSA.double() + query_BA.double().unsqueeze(1)) @ vector.double(), 1)
        source = with_powers(Source(keys, 2 * keys_nSA, torch.zeros(2, 5, dtype=torch.bool)))
        weights, _ = attend(source, powers(2 * query_BA), vector)
        torch.testing.assert_close(weights.double(), expected, rtol=1e-4, atol=1e-6)
    exact = Source(keys.double(), 2 * (keys.double() + 300), torch.zeros(2, 5, dtype=torch.bool))
    weights, _ = attend(with_powers(exact), powers(2 * (query.double() - 300)), vector.double())
    expected = torch.softmax(torch.tanh(keys.double() + query.double().unsqueeze(1)) @ vector.double(), 1)
    torch.testing.assert_close(weights, expected)
    source = with_powers(Source(keys, torch.full_like(keys, 1e4), torch.zeros(2, 5, dtype=torch.bool)))
    for size in (-1e4, 1e4):
        assert attend(source, powers(torch.full_like(query, size)), vector)[0].isfinite().all()


@torch.no_grad()
def test_beams_share_their_sentence() -> None:
    source, query, vector = a_source(2, 5, 4), torch.randn(6, 4).double(), torch.randn(4).double()
    copied = Source(*(part.repeat_interleave(3, 0) for part in source))
    query = powers(query)
    torch.testing.assert_close(attend(with_powers(source), query, vector), attend(with_powers(copied), query, vector))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mean", [0.0, 0.05])
@torch.no_grad()
def test_half_precision_is_as_exact_as_tanh(dtype: torch.dtype, mean: float) -> None:
    keys, query, annotations = torch.randn(8, 20, 1000), torch.randn(8, 1000), torch.randn(8, 20, 4)
    vector = torch.randn(1000) * 0.1 + mean
    keys, query, annotations, vector = (part.to(dtype) for part in (keys, query, annotations, vector))
    exact = torch.softmax(torch.tanh(keys.double() + query.double().unsqueeze(1)) @ vector.double(), 1)
    theirs = torch.softmax((torch.tanh(keys + query.unsqueeze(1)) @ vector).float(), 1)
    source = Source(annotations, keys * 2, torch.zeros(8, 20, dtype=torch.bool))
    ours, _ = attend(with_powers(source), powers(query * 2), vector)
    assert ours.dtype == dtype
    assert (ours - exact).abs().max() <= (theirs - exact).abs().max() + torch.finfo(dtype).eps


@every_cell
def test_autocast_leaves_the_layer_in_the_precision_of_its_weights(cell: str) -> None:
    layer, source = ConditionalLayer(3, 4, 6, CELLS[cell]), a_source(2, 5, 6)
    source = Source(source[0].float(), source[1].float(), source[2])
    inputs, state = torch.randn(3, 2, 3), torch.randn(2, 4 * CELLS[cell].states)
    expected = layer(inputs, state, source)[0]
    with torch.autocast("cpu", torch.bfloat16):
        states, contexts, _, _ = layer(inputs, state, source)
        (states.sum() + contexts.sum()).backward()
    assert states.dtype == torch.float32
    # The inputs' share of the gates is a product in half precision.
    torch.testing.assert_close(states, expected, rtol=0.02, atol=0.01)


@every_cell
@pytest.mark.parametrize(
    ("dtype", "way"), [(torch.float32, "blas"), (torch.float32, "onednn"), (torch.bfloat16, "blas")]
)
def test_packed_weights_change_nothing(
    cell: str, dtype: torch.dtype, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences long enough for weights to be packed, against the same sequences without packing."""
    layer, source = ConditionalLayer(3, 4, 6, CELLS[cell]).to(dtype), a_source(2, 5, 6)
    source = Source(source[0].to(dtype), source[1].to(dtype), source[2])
    inputs = torch.randn(products.WORTH_PACKING, 2, 3).to(dtype)
    state = torch.randn(2, 4 * CELLS[cell].states).to(dtype)
    packs = []

    def counted(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        packs.append(weight.is_mkldnn)
        return products.product(inputs, weight, bias)

    def everything() -> list[torch.Tensor]:
        states, contexts, _, last = layer(inputs, state, source)
        total = states.float().square().sum() + contexts.float().sum() + last.float().sum()
        used = [each for name, each in layer.named_parameters() if name != "energy_bias"]
        return [states, contexts, last, *torch.autograd.grad(total, used)]

    monkeypatch.setattr(cells, "product", counted)
    with products.multiplying_by(way):
        found = everything()
    # Two products a step and, where oneDNN has the others, too, four with gradients.
    kinds = 2 if (dtype, way) == (torch.float32, "blas") else 6
    packs_any = products.packed(torch.ones(2, 2, dtype=dtype)).is_mkldnn
    assert packs.count(True) == (kinds * len(inputs) if packs_any else 0)
    monkeypatch.setattr(products, "WORTH_PACKING", math.inf)
    packs.clear()
    # Gradients in bfloat16 are sums over the steps, whose terms are rounded.
    torch.testing.assert_close(found, everything(), **({} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}))
    assert not any(packs)


@every_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_a_search_keeps_packed_weights(cell: str, dtype: torch.dtype) -> None:
    layer, source = ConditionalLayer(3, 4, 6, CELLS[cell]).to(dtype), a_source(2, 5, 6)
    source = Source(source[0].to(dtype), source[1].to(dtype), source[2])
    inputs, state = torch.randn(1, 2, 3).to(dtype), torch.randn(2, 4 * CELLS[cell].states).to(dtype)
    expected = layer(inputs, state, source)
    layer.keep()
    close = {} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(layer(inputs, state, source), expected, **close)
    kept = layer.kept.last[1]
    assert [each.is_mkldnn for each in kept] == [products.packed(torch.ones(2, 2, dtype=dtype)).is_mkldnn] * 4
    layer(inputs, state, source)
    assert layer.kept.last[1] is kept
    layer.weight_hidden1.zero_()
    changed = layer(inputs, state, source)
    layer.keep(False)
    torch.testing.assert_close(changed, layer(inputs, state, source), **close)
    assert not torch.equal(changed[0], expected[0])


def test_products_of_vectors_are_by_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, source, ways = ConditionalLayer(3, 4, 6, CELLS["gru"]).double(), a_source(2, 5, 6), []
    multiply, blocks = torch.mv, attention._hidden_blocks
    monkeypatch.setattr(torch, "mv", lambda *args, **kw: ways.append(products.in_use()) or multiply(*args, **kw))
    monkeypatch.setattr(attention, "_hidden_blocks", lambda *args: ways.append(products.in_use()) or blocks(*args))
    with products.multiplying_by("onednn"):
        states, *_ = layer(torch.randn(1, 2, 3).double(), torch.randn(2, 4).double(), source)
        states.sum().backward()
        assert products.in_use() == "onednn"
    assert ways == ["blas"] * 4  # two sentences, one at a time; then their gradients


@every_cell
def test_gradcheck(cell: str) -> None:
    layer, source = ConditionalLayer(3, 4, 6, CELLS[cell]).double(), a_source(2, 5, 6)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    inputs = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    state = torch.randn(2, 4 * CELLS[cell].states, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def run(inputs, state, annotations, keys, *parameters):
        states, contexts, _, last = torch.func.functional_call(
            layer, dict(zip(names, parameters, strict=True)), (inputs, state, Source(annotations, keys, source[2]))
        )
        return states, contexts, last

    assert torch.autograd.gradcheck(run, (inputs, state, *source[:2], *layer.parameters()), fast_mode=True)


@every_cell
def test_steps_one_by_one_equal_all_at_once(cell: str) -> None:
    layer, source = ConditionalLayer(3, 4, 6, CELLS[cell]).double(), a_source(2, 5, 6)
    inputs, state = torch.randn(4, 2, 3).double(), torch.randn(2, 4 * CELLS[cell].states).double()
    states, contexts, weights, last = layer(inputs, state, source)
    for t in range(4):
        one_state, one_context, one_weight, state = layer(inputs[t : t + 1], state, source)
        torch.testing.assert_close(one_state[0], states[t])
        torch.testing.assert_close(one_context[0], contexts[t])
        torch.testing.assert_close(one_weight[0], weights[t])
    torch.testing.assert_close(state, last)
