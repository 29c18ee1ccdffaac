"""Feed-forward language models: equations, true contexts along a stream, sizes, sharing, decoding, refusals."""

import copy
import itertools
import logging
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fairseq_tiedemb.models.feedforward_lm import FeedForwardLM
from fairseq_tiedemb.regularizers import REGULARIZERS

from .. import reference
from ..crossing import crossed
from . import recurrent_lms
from .common import Sized, count, dictionary, grown
from .recurrent_lms import WORDS, chunks, text

EOS = WORDS.eos()
TIED = {"share_decoder_input_output_embed": True}
SKIP = {"skip_connections": True}
DEEP = ("none", "linear", "tanh", "relu")
# Every deep output with and without skip connections, tied and not, but for what has no widths to tie.
WAYS = [
    {"deep_output": deep, "skip_connections": skip, "share_decoder_input_output_embed": tied}
    | ({} if tied and deep == "none" else {"decoder_hidden_size": 8})
    for deep, skip, tied in itertools.product(DEEP, (False, True), (False, True))
    if not (deep == "none" and skip and tied)
]
SHAPES = [{}, {"ngram_order": 2}, {"ngram_order": 3, "activation_fn": "relu"}]
SHAPES += [{"decoder_layers": 3, "activation_fn": "relu"}]
every_order = pytest.mark.parametrize("order", [2, 3, 5])


def build(preset: str = "feedforward_lm", **options: Any) -> Any:
    """A model of width 6; ``decoder_embed_dim`` and ``decoder_hidden_size`` as they are given."""
    return recurrent_lms.build(preset, **options)


def expected_scores(model: FeedForwardLM, words: list[int], cfg: dict[str, Any]) -> np.ndarray:
    return reference.feedforward_language_model_scores(
        words,
        {name: value.numpy() for name, value in model.state_dict().items()},
        order=cfg.get("ngram_order", 5),
        layers=cfg.get("decoder_layers", 1),
        activation=cfg.get("activation_fn", "tanh"),
        skip=cfg.get("skip_connections", False),
        deep=cfg.get("deep_output", "linear"),
        end=EOS,
    )


# --- equations -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "more"), crossed(WAYS, SHAPES))
def test_scores_are_those_of_the_equations(options: dict, more: dict) -> None:
    cfg = {**options, **more}
    model = grown(build(**cfg)).double().eval()
    tokens = text(3, 7)
    scores, _ = model(tokens)
    for row, words in enumerate(tokens.tolist()):
        np.testing.assert_allclose(scores[row].detach(), expected_scores(model, words, cfg), rtol=1e-9)


def test_padding_does_not_reach_what_stands_after_it() -> None:
    """On either side: before the first real word of a row stand ends of sentence."""
    model = grown(build()).double().eval()
    rows, width = [text(1, length, seed=length)[0] for length in (2, 5, 7)], 7
    alone = [model(row.unsqueeze(0))[0][0] for row in rows]
    for left in (False, True):
        pads = [(width - len(row), 0) if left else (0, width - len(row)) for row in rows]
        batch = torch.stack([F.pad(row, each, value=WORDS.pad()) for row, each in zip(rows, pads, strict=True)])
        found = model(batch)[0]
        for row, scores, expected in zip(rows, found, alone, strict=True):
            torch.testing.assert_close(scores[width - len(row) :] if left else scores[: len(row)], expected)


def test_a_literal_pad_in_a_sentence_is_a_word() -> None:
    model = grown(build()).double().eval()
    words = [EOS, 5, WORDS.pad(), WORDS.pad(), 6, 7]
    found = model(torch.tensor([words]))[0][0].detach()
    np.testing.assert_allclose(found, expected_scores(model, words, {}), rtol=1e-9)


# --- the context along a stream --------------------------------------------------------------------------------------


@every_order
def test_the_state_is_the_last_words(order: int) -> None:
    model = build(ngram_order=order)
    tokens = text(3, 4)
    for start, piece in chunks(tokens, 2):
        model.decoder.extract_features(piece, stream_position=start)[0]
    position, state = model.carried_state()
    assert (position, state.dtype, state.shape) == (4, torch.int64, (1, 3, order - 2))
    assert torch.equal(state[0], tokens[:, 4 - (order - 2) :])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_no_word(dtype: torch.dtype) -> None:
    words = dictionary(5000)
    model = build(words=words)
    tokens = torch.tensor([[4999, 4997, 2049, 4095, 4097]])
    model.decoder.extract_features(tokens, stream_position=0)[0]
    model.to(dtype)
    model.decoder.extract_features(tokens[:, :1], stream_position=5)[0]
    assert model.carried_state()[1].tolist() == [[[4095, 4097, 4999]]]


# --- sizes -----------------------------------------------------------------------------------------------------------

WIDTHS = {"decoder_embed_dim": 100, "decoder_hidden_size": 200}
V, M, H, X = 10_000, 100, 200, 400


@pytest.mark.parametrize(
    ("preset", "options", "expected", "tables"),
    [
        ("feedforward_lm", {"deep_output": "none"}, V * M + X * H + H + V * H + V, (M, H)),  # 3,090,200
        ("feedforward_lm", {}, 2_110_300, (M, M)),
        ("feedforward_lm", {"deep_output": "relu"}, 2_110_300, (M, M)),
        ("feedforward_lm", TIED, 1_110_300, (M,)),
        ("feedforward_lm_wt", {}, 1_110_300, (M,)),
        ("feedforward_lm_wt", SKIP, 1_150_300, (M,)),
        ("bengio_lm", {}, 3_090_200 + V * X, (M, H + X)),
        ("bengio_lm", {**TIED, "deep_output": "linear"}, 1_150_300, (M,)),
    ],
)
def test_sizes_are_those_of_the_formula(
    preset: str, options: dict, expected: int, tables: tuple, caplog: pytest.LogCaptureFixture
) -> None:
    with torch.device("meta"), caplog.at_level(logging.INFO):
        model = build(preset, words=Sized(), **{**WIDTHS, **options})
    assert count(model) == expected + 2 * sum(tables) + 2  # rows of <s> and <pad> in each table, and their biases
    assert f"; {expected:,} without the rows of <s> and <pad>" in caplog.messages[-1]
    assert (model.decoder.embed_tokens is model.output.head) == (len(tables) == 1)
    assert ("input = output (weight tying)" in caplog.messages[-1]) == (len(tables) == 1)
    assert model.output.weight.shape == (len(Sized()), tables[-1])


@pytest.mark.parametrize("method", ["l2-input", "cosine"])
def test_a_sharing_method_gives_the_contexts_vectors_too(method: str) -> None:
    model = grown(build(sharing_method=method, **TIED)).double().eval()
    rows = model.decoder.embed_tokens.weight.detach()
    vectors = np.array([reference.input_vector(method, row) for row in rows.numpy()])
    other = build(**TIED).double().eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        other.decoder.embed_tokens.weight.copy_(torch.from_numpy(vectors))
    tokens = text(2, 6)
    torch.testing.assert_close(model.decoder.extract_features(tokens)[0], other.decoder.extract_features(tokens)[0])


# --- P, sharing, copies, checkpoints ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, SKIP], ids=["a", "a and x"])
def test_the_linear_deep_output_is_p(options: dict) -> None:
    model = grown(build(**options))
    penalise = REGULARIZERS["projection_regularization"]
    assert model.output.projection is model.decoder.projection
    expected = model.state_dict()["decoder.projection.weight"].double().square().sum() / 2
    assert penalise(model, 0.5).item() == pytest.approx(expected.item() / 2)
    for deep in ("none", "tanh"):
        with pytest.raises(ValueError, match="got 0.5 .* --deep-output linear of feed"):
            penalise(build(deep_output=deep), 0.5)


# --- dropout, decoding -----------------------------------------------------------------------------------------------


def test_dropout_of_the_contexts_vectors_wherever_they_go() -> None:
    model = grown(build("bengio_lm", decoder_dropout_in=0.5)).double()
    features = model.decoder.extract_features(text(40, 5))[0].detach()
    whole = copy.deepcopy(model).eval().decoder.extract_features(text(40, 5))[0].detach()
    factors = features[..., 6:] / whole[..., 6:]
    assert set(factors.round(decimals=9).unique().tolist()) == {0.0, 2.0}
    layer = model.decoder.stack.layers[0]
    torch.testing.assert_close(features[..., :6], torch.tanh(layer(features[..., 6:])))


def test_dropout_of_every_hidden_layer() -> None:
    model = grown(build(decoder_dropout_out=0.5, deep_output="none", decoder_layers=2)).double()
    inputs: list[torch.Tensor] = []
    model.decoder.stack.layers[1].register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    features = model.decoder.extract_features(text(40, 5))[0].detach()
    assert 0.4 < inputs[0].eq(0).double().mean() < 0.6
    assert 0.4 < features.eq(0).double().mean() < 0.6
    kept = features.ne(0)
    expected = 2 * torch.tanh(model.decoder.stack.layers[1](inputs[0]))
    torch.testing.assert_close(features[kept], expected[kept])


def test_dropout_is_that_of_both_places_unless_they_have_their_own() -> None:
    stack = build(dropout=0.25, decoder_dropout_in=0.0).decoder.stack
    assert (stack.dropout_in.p, stack.dropout_out.p) == (0.0, 0.25)


def test_there_is_no_longest_sentence() -> None:
    assert build().max_positions() == 2**31 - 1
