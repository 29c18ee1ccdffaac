"""Sharing methods on the bands of adaptive inputs and outputs, and on factorised embeddings."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss

from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.sharing import sharing_method

from .. import reference
from . import recurrent_lms
from .common import PAD, TARGET, dictionary, grown
from .families import (
    ALL,
    BANDS,
    DECODER,
    FAMILIES,
    TRANSLATION,
    WORDS,
    build,
    every_family,
    every_method,
    inputs,
    scores,
    task_of,
)
from .test_tied_transformer import NO_PADDING, steps

language_models = pytest.mark.parametrize("family", ["transformer_lm", "lightconv_lm"])
SIZES = (8, 8, 8)  # of the bands
RANK = 6


def assert_each_band_has_the_papers_vectors_and_scores(
    bands: Any, softmax: Any, sizes: Sequence[int], method: str
) -> None:
    """``bands``: fairseq's ``AdaptiveInput``, ``softmax``: its ``AdaptiveSoftmax``; both in float64."""
    width = bands.embedding_dim
    features = torch.randn(3, width, dtype=torch.float64)
    layers = [softmax.head, *softmax.tail]
    first = 0
    for index, (size, band, layer) in enumerate(zip(sizes, bands.embeddings, layers, strict=True)):
        rows = band[0].weight.detach().numpy()
        projection = band[1].weight.detach().numpy()
        assert rows.shape == (size, width // 2**index)
        vectors = bands(torch.arange(first, first + size)).detach()
        narrow = features if index == 0 else layer[0](features)
        found = layer(features).detach()
        for word in range(size):
            if (index, word) == (0, PAD):
                continue
            expected = projection @ reference.input_vector(method, rows[word])
            np.testing.assert_allclose(vectors[word], expected, rtol=1e-6)  # through a buffer in float32
            for row in range(len(features)):
                expected = reference.score(method, rows[word], narrow[row].detach().numpy())
                np.testing.assert_allclose(found[row, word], expected, rtol=1e-6, atol=1e-7)
        first += size
    clusters = softmax.head(features)[:, sizes[0] :]  # no words, so no method's business
    torch.testing.assert_close(clusters, softmax.head.class_proj(features), rtol=1e-6, atol=1e-7)


@every_method
@language_models
def test_each_band_has_the_vectors_and_scores_of_the_papers(family: str, method: str) -> None:
    decoder = grown(build(family, sharing_method=method, **BANDS)).double().eval().decoder
    assert_each_band_has_the_papers_vectors_and_scores(decoder.embed_tokens, decoder.adaptive_softmax, SIZES, method)


@every_method
@pytest.mark.parametrize("family", ["tied_lstm_lm", "highway_lm"])
def test_so_has_each_band_of_a_recurrent_model(family: str, method: str) -> None:
    bands = {"share_decoder_input_output_embed": True, "adaptive_softmax_cutoff": "5,8", "adaptive_softmax_factor": 2.0}
    sizes = {"decoder_embed_dim": 8, "decoder_hidden_size": 8}
    projection = {"projection": True} if family == "tied_lstm_lm" else {}
    model = recurrent_lms.build(family, sharing_method=method, **sizes, **bands, **projection)
    decoder = grown(model).double().eval().decoder
    assert_each_band_has_the_papers_vectors_and_scores(
        decoder.embed_tokens, decoder.adaptive_softmax, (5, 3, 9), method
    )


@every_method
@language_models
def test_adaptive_loss_trains_bands(family: str, method: str) -> None:
    model = build(family, sharing_method=method, **BANDS)
    sample = {"net_input": inputs(family), "target": TARGET}
    criterion = AdaptiveLoss(task_of(WORDS, WORDS), False)
    loss, size, _ = criterion(model.eval(), sample)
    log_p = model.get_normalized_probs(model(**inputs(family)), log_probs=True).detach()
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(TARGET.shape))
    expected = -sum(log_p[index][TARGET[index]] for index in np.ndindex(*TARGET.shape) if TARGET[index] != PAD)
    torch.testing.assert_close(loss[0], expected)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        loss, size, _ = criterion(model, sample)
        loss.backward()
        optimizer.step()
    assert loss.item() / size < 0.5
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@every_method
def test_rows_of_every_band_start_with_norm_one(method: str) -> None:
    """fairseq zeroes a row of every band, as if each had padding."""
    words = dictionary(240)
    cutoffs = {"adaptive_input_cutoff": "80,160", "adaptive_softmax_cutoff": "80,160"}
    model = build("transformer_lm", sharing_method=method, target=words, source=words, **{**BANDS, **cutoffs})
    for index, band in enumerate(model.decoder.embed_tokens.embeddings):
        norms = band[0].weight.norm(dim=1)
        assert norms.mean().item() == pytest.approx(1.0, abs=0.2)
        if index == 0 or not sharing_method(method).divides_by_norm:
            assert norms[PAD] == 0
        else:
            assert 0.1 < norms[PAD] < 3


@every_method
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_bands_in_half_precision_are_finite(method: str, dtype: torch.dtype) -> None:
    model = build("transformer_lm", sharing_method=method, **BANDS).to(dtype)
    sample = {"net_input": inputs("transformer_lm"), "target": TARGET}
    loss = AdaptiveLoss(task_of(WORDS, WORDS), False)(model, sample)[0]
    loss.sum().backward()
    assert loss.isfinite().all()
    grads = [band[0].weight.grad for band in model.decoder.embed_tokens.embeddings]
    assert all(grad.isfinite().all() for grad in grads[:2])
    assert grads[2] is None  # no word of the batch is in the third band


@every_method
@language_models
def test_bands_decode_step_by_step_as_in_the_whole(family: str, method: str) -> None:
    model = grown(build(family, sharing_method=method, **BANDS), 0.3).eval()
    with torch.no_grad():
        whole = model.get_normalized_probs(model(**inputs(family)), log_probs=True)
        features = torch.stack(steps(model, family), 1)
        found = model.get_normalized_probs((features, None), log_probs=True)
    torch.testing.assert_close(found[NO_PADDING], whole[NO_PADDING], rtol=1e-4, atol=1e-4)


@every_family
def test_an_adaptive_softmax_loads_where_inputs_are_shared(family: str) -> None:
    """fairseq's decoder adds the table of a full softmax to such a checkpoint, and then does not load it."""
    options = {**(ALL if family in TRANSLATION else DECODER), "adaptive_softmax_cutoff": "8,16"}
    model, other = (build(family, seed=seed, **options).eval() for seed in (1, 2))
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(scores(other, family), scores(model, family), rtol=0, atol=0)


@every_method
def test_a_head_of_bands_gives_each_word_its_probability(method: str) -> None:
    output = grown(build("transformer_lm", sharing_method=method, **BANDS), 0.3).eval().output
    words = torch.tensor([0, 7, 8, 15, 16, 23])  # on both sides of each border
    features = torch.randn(2, 3, 16)
    log_p = output.scores(features)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(2, 3))
    expected = log_p.flatten(0, 1).gather(1, words.unsqueeze(1)).squeeze(1)
    flat = features.flatten(0, 1)
    torch.testing.assert_close(output.log_prob(flat, words), expected)
    torch.testing.assert_close(output.loss(flat, words, LossOptions(reduce=False)).loss, -expected)
    torch.testing.assert_close(output.loss(flat, words).loss, -expected.sum())


@pytest.mark.parametrize("entry", ["head.word_proj.weight", "tail.0.2.weight", "tail.1.2.weight"])
def test_a_checkpoint_with_another_table_for_a_bands_scores_is_refused(entry: str) -> None:
    model = build("transformer_lm", **BANDS)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    state[f"decoder.adaptive_softmax.{entry}"][5] += 1.0
    with pytest.raises(RuntimeError, match=f"{entry}: needs the table of the input"):
        model.load_state_dict(state)


# Factorised embeddings


FACTORIZED = {f"{family}-decoder": (family, DECODER) for family in FAMILIES}
FACTORIZED |= {f"{family}-all": (family, ALL) for family in ("transformer", "dynamicconv")}
FACTORIZED |= {f"{family}-untied": (family, {}) for family in ("transformer", "lightconv_lm")}
every_factorized = pytest.mark.parametrize(("family", "options"), FACTORIZED.values(), ids=FACTORIZED)


@every_method
@every_factorized
def test_factorised_vectors_and_scores_are_those_of_the_papers(family: str, options: dict, method: str) -> None:
    model = grown(build(family, sharing_method=method, embedding_rank=RANK, **options)).double().eval()
    source, output = model.decoder.embed_tokens, model.decoder.output_projection
    inward, outward = source.projection.weight.detach().numpy(), output.factor.weight.detach().numpy()
    table = source.weight.detach().numpy()
    out_table = output.weight.detach().numpy()
    assert table.shape == out_table.shape == (24, RANK)
    assert (source.weight is output.weight) == bool(options)
    vectors = source(torch.arange(24)).detach()
    features = torch.randn(16, dtype=torch.float64)
    found = output.scores(features).detach()
    for word in range(24):
        if word == PAD:
            continue
        np.testing.assert_allclose(vectors[word], inward @ reference.input_vector(method, table[word]), rtol=1e-9)
        expected = reference.score(method, out_table[word], outward @ features.numpy())
        np.testing.assert_allclose(found[word], expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "tables", "projections"), [({}, 3, 3), (DECODER, 2, 3), (ALL, 1, 2)], ids=["untied", "decoder", "all"]
)
def test_factorising_saves_what_it_says(options: dict, tables: int, projections: int) -> None:
    """V R for every table and R D for every projection, in the place of V D for every table."""

    def size(**more: Any) -> int:
        return sum(parameter.numel() for parameter in build("transformer", **options, **more).parameters())

    assert size() - size(embedding_rank=RANK) == tables * 24 * (16 - RANK) - projections * RANK * 16


@every_method
@every_family
def test_factorised_vectors_start_with_the_lengths_of_whole_ones(family: str, method: str) -> None:
    words = dictionary(500)
    wide = {f"{side}_embed_dim": 256 for side in ("encoder", "decoder")}
    wide |= {"decoder_input_dim": 256, "decoder_output_dim": 256}
    sharing = ALL if family in TRANSLATION else DECODER
    model = build(family, sharing_method=method, embedding_rank=64, source=words, target=words, **wide, **sharing)
    decoder = model.decoder
    assert decoder.embed_tokens.weight.norm(dim=1).mean().item() == pytest.approx(1.0, rel=0.1)
    assert not decoder.embed_tokens.weight[PAD].any()
    assert decoder.embed_tokens(torch.arange(4, 500)).norm(dim=1).mean().item() == pytest.approx(1.0, rel=0.1)
    features = torch.randn(200, 256)
    loss = torch.nn.functional.cross_entropy(decoder.output_projection.scores(features), torch.randint(4, 500, (200,)))
    assert abs(loss.item() - math.log(500)) < 1.0
