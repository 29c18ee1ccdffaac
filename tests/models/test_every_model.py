"""What holds for every model: losses, searches, half precision, dropout, learning by heart."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator

from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.sharing import SHARING_METHODS

from ..gradients import assert_same_gradients
from . import attention_nmts, families, recurrent_lms
from .common import PAD, TARGET, assert_gradients_are_finite, dictionary, grown
from .families import ALL, BANDS, DECODER, FAMILIES, TRANSLATION, WORDS, inputs

SIDES = ("encoder", "decoder")
ATTENTION = ("lstm_nmt_twwt", "dl4mt_twwt")
STREAMS = ("tied_lstm_lm", "highway_lm", "feedforward_lm")
MODELS = (*FAMILIES, *ATTENTION, *STREAMS)
TRANSLATORS = (*TRANSLATION, *ATTENTION)
VOCABULARY = [word for word in range(len(WORDS)) if word != PAD]
PADDED = torch.tensor([[4, 5], [6, PAD], [7, 8]])

every_model = pytest.mark.parametrize("name", MODELS)


def test_every_family_is_here() -> None:
    ours = {model.__module__ for model in MODEL_REGISTRY.values() if model.__module__.startswith("fairseq_tiedemb")}
    names = (*(f"tied_{name}" for name, _ in FAMILIES.values()), *ATTENTION, *STREAMS)
    assert ours - {MODEL_REGISTRY[name].__module__ for name in names} == {"fairseq_tiedemb.models.word2vec"}


def build(name: str, *, words: Dictionary = WORDS, width: int = 16, **options: Any) -> Any:
    """A tied model of any kind, all layers of one width."""
    if name in STREAMS:
        widths: dict[str, Any] = {"decoder_embed_dim": width, "decoder_hidden_size": width}
        if name == "feedforward_lm":
            widths |= {"deep_output": "none", "init_range": 0.3}
        return recurrent_lms.build(name, words=words, **{**widths, **DECODER, **options})
    if name in ATTENTION:
        widths = {f"{side}_{layer}": width for side in SIDES for layer in ("embed_dim", "hidden_size")}
        widths["decoder_out_embed_dim"] = width
        return attention_nmts.build(name, source=words, target=words, **{**widths, **options})
    widths = {f"{side}_{layer}embed_dim": width for side in SIDES for layer in ("", "ffn_")}
    sharing = ALL if name in TRANSLATION else DECODER
    return families.build(name, source=words, target=words, **{**widths, **sharing, **options})


def batch_of(name: str) -> dict[str, torch.Tensor]:
    """The `net_input` of a batch."""
    return inputs("transformer" if name in TRANSLATORS else name)


def sentences(name: str, source: torch.Tensor, previous: torch.Tensor) -> dict[str, torch.Tensor]:
    """The `net_input` of sentences without padding; a language model has no source."""
    if name not in TRANSLATORS:
        return {"src_tokens": previous, "src_lengths": torch.full((len(previous),), previous.size(1))}
    return {**sentences("", previous, source), "prev_output_tokens": previous}


METHODS = list(SHARING_METHODS)
P = {"projection": True, "projection_bias": True}
IN_BANDS = {**BANDS, "share_decoder_input_output_embed": False, "embedding_scale": 1.5}
CONSTANTS = {"embedding_scale": 1.5, "logit_scale": 0.7, "logit_soft_cap": 2.0, "input_gradient_scale": 3.0}
# Every model by one method, every method on two models, and what else stands between features and tables.
TWO = ("lightconv_lm", "lstm_nmt_twwt")
CASES = [(name, METHODS[place % len(METHODS)], {}) for place, name in enumerate(MODELS) if name not in TWO]
CASES += [(name, method, {}) for name in TWO for method in METHODS]
CASES += [("tied_lstm_lm", "plain", P), ("lstm_nmt_twwt", "cosine", P), ("transformer", "plain", P)]
CASES += [("feedforward_lm", "distance", {"deep_output": "linear", "skip_connections": True})]
CASES += [("feedforward_lm", "plain", {"ngram_order": 2})]  # with no word to carry
CASES += [("transformer_lm", "l2-input", {"embedding_rank": 6}), ("dl4mt_twwt", "plain", {"decoder_layers": 2})]
CASES += [(name, METHODS[-1 - place % len(METHODS)], CONSTANTS) for place, name in enumerate(MODELS)]
MIXED = ("tied_lstm_lm", "transformer_lm", "transformer", "lightconv", "lstm_nmt_twwt")
CASES += [(name, "scaled-words", {"output_layer": "mixture"}) for name in MIXED]
CASES += [(name, "plain", {"output_layer": "joint", "joint_dim": 5}) for name in ("highway_lm", "transformer")]
every_case = pytest.mark.parametrize(("name", "method", "options"), CASES, ids=str)


@every_case
def test_the_loss_is_that_of_the_scores_and_trains_everything(name: str, method: str, options: dict) -> None:
    model = grown(build(name, sharing_method=method, **options)).double().eval()
    scores, is_word = model(**batch_of(name))[0], TARGET.ne(PAD)
    features = model.extract_features(**batch_of(name))[0]
    torch.testing.assert_close(model.decoder.output_layer(features), scores)
    log_p = scores.log_softmax(-1)[is_word]
    nll = -log_p.gather(1, TARGET[is_word].unsqueeze(1)).sum()
    rest = 0.1 / (len(WORDS) - 1)  # fairseq's label smoothing
    expected = (1 - 0.1 - rest) * nll - rest * log_p.sum()
    found = model(**batch_of(name), target=TARGET, loss_options=LossOptions(0.1))
    torch.testing.assert_close(found.nll_loss, nll)
    # Data parallel training would wait for a parameter without a gradient for ever.
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert_same_gradients(found.loss, expected, trained, rtol=1e-7, atol=1e-9)


# The features of a language model whose last block is not normalised, or is but added to its input, contain the
# input's vector, sqrt(D) times as long: that word has the best score at first, in fairseq's models as in ours.
NOT_NORMALISED = {"lightconv_lm": 2.5}


@every_case
def test_training_starts_at_a_guess(name: str, method: str, options: dict) -> None:
    words = dictionary(1000)
    model = build(name, words=words, width=64, sharing_method=method, **options).eval()
    source, previous, target = torch.randint(4, len(words), (3, 16, 8))
    loss = model(**sentences(name, source, previous), target=target).loss
    assert abs(loss.item() / target.numel() - math.log(len(words))) < NOT_NORMALISED.get(name, 1.0)


@pytest.mark.parametrize(("name", "options"), [*((name, CONSTANTS) for name in MODELS), ("transformer_lm", IN_BANDS)])
def test_constants_reach_every_table(name: str, options: dict[str, Any]) -> None:
    tables = [each for each in build(name, **options).modules() if isinstance(each, SharedEmbedding)]
    expected = Constants(**{key: value for key, value in options.items() if key in CONSTANTS})
    assert [each.constants for each in tables] == [expected] * (3 if options is IN_BANDS else 1)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_of_what_a_table_does_as_input_times_the_constant(name: str) -> None:
    """Lopardo et al. 2026: dL/dW = s * (input's part) + (output's part)."""
    model = grown(build(name)).double().eval()
    tables = [each for each in model.modules() if isinstance(each, SharedEmbedding) and each.embeds]

    def gradients(scale: float) -> list[torch.Tensor]:
        for table in tables:
            table.constants = Constants(input_gradient_scale=scale)
        loss = model(**batch_of(name), target=TARGET).loss
        return list(torch.autograd.grad(loss, [each.weight for each in tables], materialize_grads=True))

    for none, once, thrice in zip(gradients(0.0), gradients(1.0), gradients(3.0), strict=True):
        assert not torch.allclose(none, once)
        torch.testing.assert_close(thrice, none + 3.0 * (once - none))


@every_case
def test_a_search_has_the_scores_of_the_model(name: str, method: str, options: dict) -> None:
    """Step by step with moving beams, and by beam search after prefixes of several lengths: its scores are those."""
    model = grown(build(name, sharing_method=method, **options), 0.3).double().eval()
    source, tokens = torch.randint(4, len(WORDS), (2, 3, 5))
    with torch.no_grad():
        whole = model(**sentences(name, source, tokens))[0]
        encoded = {"encoder_out": model.encoder(source, torch.full((3,), 5))} if name in TRANSLATORS else {}
        state: dict = {}
        for last in range(1, tokens.size(1) + 1):
            scores = model.decoder(tokens[:, :last], incremental_state=state, **encoded)[0]
            torch.testing.assert_close(scores[:, -1], whole[:, last - 1])
        if name not in TRANSLATORS:
            order = torch.tensor([2, 0, 1])
            model.decoder.reorder_incremental_state_scripting(state, order)
            more = torch.cat((tokens, tokens[:, :1]), 1)
            found = model.decoder(more[order], incremental_state=state)[0][:, -1]
            torch.testing.assert_close(found, model(**sentences(name, source, more))[0][order, -1])
    generator = SequenceGenerator([model], WORDS, beam_size=3, max_len_b=6, normalize_scores=False)
    assert generator.model.has_incremental
    prefix = None if name in TRANSLATORS else PADDED if name in STREAMS else tokens[:, :2]
    read = source if prefix is None else prefix
    sample = {"net_input": {"src_tokens": read, "src_lengths": read.ne(PAD).sum(1)}}
    for row, hypotheses in enumerate(generator.generate([model], sample, prefix_tokens=prefix)):
        for hypothesis in hypotheses:
            found = hypothesis["tokens"].unsqueeze(0)
            assert prefix is None or found[0, 0] == prefix[row, 0]
            previous = torch.nn.functional.pad(found[:, :-1], (1, 0), value=WORDS.eos())
            loss = model(**sentences(name, source[row : row + 1], previous), target=found).loss
            # fairseq keeps the scores of hypotheses in float32.
            assert hypothesis["score"].item() == pytest.approx(-loss.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "method", "options", "dtype"),
    [(*case, torch.float16) for case in CASES] + [(*case, torch.bfloat16) for case in CASES if case[0] in TWO],
    ids=str,
)
def test_half_precision_is_finite(name: str, method: str, options: dict, dtype: torch.dtype) -> None:
    """The padding row, which starts at zero, included: its gradient is of the size of the others."""
    model = build(name, sharing_method=method, **options).to(dtype)
    batch = batch_of(name)
    table = model.decoder.embed_tokens.weight
    assert not table[PAD].any()
    smoothed = model(**batch, target=TARGET, loss_options=LossOptions(0.1)).loss
    for loss in (smoothed, torch.log_softmax(model(**batch)[0], -1).sum()):
        model.zero_grad()
        loss.backward()
        assert loss.isfinite()
        assert_gradients_are_finite(model)
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


# Models of some kinds, each by another method; the other pairs are slow.
KINDS = ("lightconv_lm", "dl4mt_twwt", "feedforward_lm")
QUICK = set(zip(KINDS, METHODS, strict=False))
PAIRS = [
    pytest.param(name, method, marks=[] if (name, method) in QUICK else pytest.mark.slow)
    for name in MODELS
    for method in METHODS
]


@pytest.mark.parametrize(
    ("name", "place"),
    [("tied_lstm_lm", "dropout"), ("tied_lstm_lm", "decoder_dropout_in"), ("tied_lstm_lm", "decoder_dropout_out")]
    + [("feedforward_lm", "dropout"), ("lstm_nmt_twwt", "dropout")],
)
def test_dropout_only_while_training(name: str, place: str) -> None:
    model, without = (grown(build(name, **{place: p})) for p in (0.5, 0.0))
    without.load_state_dict(model.state_dict())
    assert not torch.equal(*(model(**batch_of(name))[0] for _ in range(2)))
    torch.testing.assert_close(model.eval()(**batch_of(name))[0], without(**batch_of(name))[0])


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


@every_model
def test_a_checkpoint_with_two_tables_for_one_is_refused(name: str) -> None:
    """Whichever of the names of a tied table has another entry."""
    model = build(name)
    endings = ("embed_tokens.weight", "output.weight", "projection.weight")
    names = [key for key in model.state_dict() if key.endswith(endings)]
    tables = [key for key in names if model.state_dict()[key].shape == model.output.weight.shape]
    assert len(tables) == (3 if name in TRANSLATORS else 2)
    for key in tables:
        state = {name: entry.clone() for name, entry in model.state_dict().items()}
        state[key][-1, 0] *= 1 + 1e-6  # even by a rounding
        with pytest.raises((ValueError, RuntimeError), match="needs (a checkpoint with one|the table of the input)"):
            model.load_state_dict(state)
    model.load_state_dict(model.state_dict())
