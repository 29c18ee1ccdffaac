"""What holds for every model by every sharing method: half precision, learning by heart, the papers' properties."""

from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.sharing import SHARING_METHODS

from . import attention_nmts, families, recurrent_lms
from .common import PAD, TARGET, dictionary, grown
from .families import ALL, DECODER, FAMILIES, TRANSLATION, WORDS, every_method, inputs

SIDES = ("encoder", "decoder")
ATTENTION = ("lstm_nmt_twwt", "dl4mt_twwt")
STREAMS = ("tied_lstm_lm", "highway_lm", "feedforward_lm")
MODELS = (*FAMILIES, *ATTENTION, *STREAMS)
TRANSLATORS = (*TRANSLATION, *ATTENTION)
VOCABULARY = [word for word in range(len(WORDS)) if word != PAD]

every_model = pytest.mark.parametrize("name", MODELS)


def build(name: str, *, words: Dictionary = WORDS, width: int = 16, **options: Any) -> Any:
    """A tied model of any kind, all layers of one width."""
    if name in STREAMS:
        widths: dict[str, Any] = {"decoder_embed_dim": width, "decoder_hidden_size": width}
        if name == "feedforward_lm":
            widths |= {"deep_output": "none", "init_range": 0.3}
        return recurrent_lms.build(name, words=words, **widths, **DECODER, **options)
    if name in ATTENTION:
        widths = {f"{side}_{layer}": width for side in SIDES for layer in ("embed_dim", "hidden_size")}
        widths["decoder_out_embed_dim"] = width
        return attention_nmts.build(name, source=words, target=words, **widths, **options)
    widths = {f"{side}_{layer}embed_dim": width for side in SIDES for layer in ("", "ffn_")}
    sharing = ALL if name in TRANSLATION else DECODER
    return families.build(name, source=words, target=words, **{**widths, **sharing, **options})


def output_scores(model: Any, features: torch.Tensor) -> torch.Tensor:
    """What the output table makes of features."""
    return model.output.scores(features)


@every_method
@every_model
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_finite(name: str, method: str, dtype: torch.dtype) -> None:
    """The padding row, which starts at zero, included: its gradient is of the size of the others."""
    model = build(name, sharing_method=method).to(dtype)
    batch = inputs("transformer" if name in TRANSLATORS else name)
    table = model.decoder.embed_tokens.weight
    assert not table[PAD].any()
    for loss in (
        model(**batch, target=TARGET, loss_options=LossOptions(0.1)).loss,
        torch.log_softmax(model(**batch)[0], -1).sum(),
    ):
        model.zero_grad()
        loss.backward()
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
        largest = table.grad[VOCABULARY].norm(dim=1).max()
        # Rows of a model of streams start so small that by distance they have nearly no offset; the padding row, which
        # counts as of norm 1, has.
        offset = 2 if name in STREAMS and method == "distance" else 1
        assert 0 < table.grad[PAD].norm() <= offset * largest


ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
TRANSFORMER = {**ONE_LAYER, "attention_dropout": 0.0, "weight_dropout": 0.0, "input_dropout": 0.0}
TRANSFORMER |= {"encoder_kernel_size_list": [3], "decoder_kernel_size_list": [3]}
# options, width, learning rate and what part of it is left at the end, updates
LEARNING: dict[str, tuple[dict[str, Any], int, float, float, int]] = {
    **dict.fromkeys(FAMILIES, (TRANSFORMER, 32, 1e-2, 1.0, 80)),
    "lstm_nmt_twwt": (ONE_LAYER, 48, 2e-2, 0.1, 100),
    "dl4mt_twwt": (ONE_LAYER, 32, 4e-2, 0.1, 80),
    "tied_lstm_lm": ({"decoder_layers": 1}, 64, 2e-2, 0.1, 150),
    "highway_lm": ({"decoder_depth": 2, "transform_bias": 0.0}, 64, 3e-2, 0.1, 120),
    "feedforward_lm": ({}, 64, 2e-2, 0.1, 100),
}


# Every model and every method once; the other pairs are slow.
PAIRS = [
    pytest.param(name, method, marks=[] if place % len(SHARING_METHODS) == number else pytest.mark.slow)
    for place, name in enumerate(MODELS)
    for number, method in enumerate(SHARING_METHODS)
]


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_twenty_sentences_are_learnt_by_heart(name: str, method: str) -> None:
    """Words that never occur do no harm, and stay finite."""
    rng = np.random.default_rng(1)
    words = dictionary(40)  # of which 20 never occur
    length = 5
    sentences = torch.from_numpy(rng.integers(4, 24, (20, length)))
    end = torch.full((20, 1), words.eos())
    target = torch.cat((sentences, end), 1)
    previous = torch.cat((end, sentences), 1)
    options, width, lr, left, updates = LEARNING[name]
    model = build(name, sharing_method=method, words=words, width=width, **options)
    batch = {"src_tokens": target.flip(1), "src_lengths": torch.full((20,), length + 1), "prev_output_tokens": previous}
    if name not in TRANSLATORS:
        batch = {"src_tokens": previous}
        target[:, :2] = words.pad()  # which sentence is meant, nobody can know before its first words
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, left, updates)
    predicted = target.ne(words.pad())
    for _ in range(updates):
        optimizer.zero_grad()
        loss = model(**batch, target=target).loss / predicted.sum()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    assert model(**batch, target=target).loss / predicted.sum() < 0.5
    assert model.decoder.embed_tokens.weight[24:].isfinite().all()
    scores = model(**batch)[0]
    log_p = torch.log_softmax(scores[predicted] if name in STREAMS else scores, -1)
    assert log_p[..., 24:40].exp().sum(-1).mean() < 0.05


@every_method
@every_model
def test_properties_of_the_methods_on_a_models_tables(name: str, method: str) -> None:
    """Identity, normality and unbiasedness, where they are true (papers: Liu et al. 2020, section 3)."""
    model = grown(build(name, sharing_method=method)).double().eval()
    table = model.decoder.embed_tokens
    if getattr(table, "bias", None) is not None:  # of the words' scores, which the paper's equations do not have
        torch.nn.init.zeros_(table.bias)
    rows = table.weight.detach()[VOCABULARY]
    norms = rows.norm(dim=1)
    vectors = table(torch.tensor(VOCABULARY)).detach()
    found = output_scores(model, vectors).detach()[:, VOCABULARY]
    wins = found.argmax(1).eq(torch.arange(len(rows)))
    cosines = rows @ rows.t() / norms / norms[:, None]
    if method in ("l2-input", "cosine", "distance"):
        assert wins.all()  # identity
    elif method == "square-output":  # only under a condition
        holds = (cosines * norms[:, None] < norms) | torch.eye(len(rows), dtype=torch.bool)
        assert torch.equal(wins, holds.all(1))
    if method == "l2-input":  # normality
        mixtures = torch.rand(50, len(rows), dtype=torch.float64).softmax(1) @ vectors
        assert output_scores(model, mixtures).detach()[:, VOCABULARY].max() <= 1 + 1e-9
    if method in ("l2-input", "square-output"):  # what makes them unbiased: a word's own share is its weight
        torch.testing.assert_close(found.diagonal(), torch.ones(len(rows), dtype=torch.float64))
    else:
        assert (found.diagonal() - 1).abs().max() > 0.1


@every_model
def test_a_checkpoint_with_two_tables_for_one_is_refused(name: str) -> None:
    """Whichever of the names of a tied table has another entry."""
    model = build(name)
    names = [
        key for key in model.state_dict() if key.endswith(("embed_tokens.weight", "output.weight", "projection.weight"))
    ]
    tables = [key for key in names if model.state_dict()[key].shape == model.output.weight.shape]
    assert len(tables) == (3 if name in TRANSLATORS else 2)
    for key in tables:
        state = {name: entry.clone() for name, entry in model.state_dict().items()}
        state[key] += 1
        with pytest.raises(
            (ValueError, RuntimeError), match="needs (a checkpoint with one table for|the table of the input)"
        ):
            model.load_state_dict(state)
    model.load_state_dict(model.state_dict())
