"""Sharing methods on the bands of adaptive inputs and outputs, and on factorised embeddings."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_tiedemb.sharing import SHARING_METHODS, sharing_method

from .. import reference
from ..crossing import crossed
from . import recurrent_lms
from .common import PAD, PREVIOUS, dictionary, grown
from .families import ALL, BANDS, DECODER, FAMILIES, TRANSLATION, build, every_family, every_method, inputs, scores
from .test_tied_transformer import steps

NO_PADDING = PREVIOUS.ne(PAD)  # which is masked in the whole, but not step by step
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


RECURRENT = {**DECODER, "adaptive_softmax_cutoff": "5,8", "adaptive_softmax_factor": 2.0}
RECURRENT |= {"decoder_embed_dim": 8, "decoder_hidden_size": 8}


@pytest.mark.parametrize(
    ("family", "method"), crossed(["transformer_lm", "tied_lstm_lm", "lightconv_lm", "highway_lm"], reference.SCORES)
)
def test_each_band_has_the_vectors_and_scores_of_the_papers(family: str, method: str) -> None:
    if family in FAMILIES:
        model = build(family, sharing_method=method, **BANDS)
    else:
        projection = {"projection": True} if family == "tied_lstm_lm" else {}
        model = recurrent_lms.build(family, sharing_method=method, **RECURRENT, **projection)
    decoder, sizes = grown(model).double().eval().decoder, (8, 8, 8) if family in FAMILIES else (5, 3, 9)
    assert_each_band_has_the_papers_vectors_and_scores(decoder.embed_tokens, decoder.adaptive_softmax, sizes, method)


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


@pytest.mark.parametrize(("family", "method"), crossed(["transformer_lm", "lightconv_lm"], reference.SCORES))
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


@pytest.mark.parametrize("entry", ["head.word_proj.weight", "tail.0.2.weight", "tail.1.2.weight"])
def test_a_checkpoint_with_another_table_for_a_bands_scores_is_refused(entry: str) -> None:
    model = build("transformer_lm", **BANDS)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    state[f"decoder.adaptive_softmax.{entry}"][5] += 1.0
    with pytest.raises(RuntimeError, match=f"{entry}: needs the table of the input"):
        model.load_state_dict(state, strict=False)


# Factorised embeddings


@pytest.mark.parametrize(("family", "method"), crossed(FAMILIES, reference.SCORES))
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


def test_tied_bands_of_no_words_have_no_loss() -> None:
    """As of a process whose rows of the stream have ended."""
    head = recurrent_lms.build(**RECURRENT).output.head
    features = torch.zeros(0, 6, requires_grad=True)
    loss = head.loss(features, torch.zeros(0, dtype=torch.long)).loss
    loss.backward()
    assert (loss.item(), features.grad.shape) == (0.0, (0, 6))


INPUT = {name: value for name, value in BANDS.items() if name.startswith("adaptive_input")}


@pytest.mark.parametrize(("family", "method"), crossed(["transformer_lm", "lightconv_lm"], SHARING_METHODS.names()))
def test_bands_that_only_embed_have_no_parameter_of_scores(family: str, method: str) -> None:
    """It would never be trained, and DistributedDataParallel stops at a parameter without a gradient."""
    model = build(family, sharing_method=method, **INPUT)
    words = torch.arange(2, 24)  # of every band
    features = model(words.unsqueeze(0), features_only=True)[0][0]
    model.decoder.output_projection.loss(features, words).loss.backward()
    assert all(parameter.grad is not None for parameter in model.decoder.embed_tokens.parameters())


@pytest.mark.parametrize(
    ("method", "entry"), [("scaled-words", "method_parameters.scales"), ("fixnorm", "feature_map.g")]
)
def test_older_checkpoints_of_bands_that_only_embed_load(method: str, entry: str) -> None:
    """Until 0.1.36 they had parameters of scores; tied bands keep theirs."""
    model = build("transformer_lm", sharing_method=method, **INPUT)
    key = f"decoder.embed_tokens.embeddings.1.0.{entry}"
    model.load_state_dict({**model.state_dict(), key: torch.ones(8)})
    tied = build("transformer_lm", sharing_method=method, **BANDS)
    state = tied.state_dict()
    del state[key]
    with pytest.raises(RuntimeError, match=f"Missing key.*{key}"):
        tied.load_state_dict(state)
