"""LSTM language models: equations, sizes, sharing, dropout, and what is refused."""

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.data import monolingual_dataset
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.models._stream_lm import StreamLM

from .. import reference
from .common import Sized, count, dictionary, grown, write_vectors
from .recurrent_lms import WORDS, build, text

TIED = {"share_decoder_input_output_embed": True}
PROJECTED = {"projection": True, "projection_bias": True}
WAYS = {"untied": {}, "tied": TIED, "projected": PROJECTED, "tied, projected": {**TIED, **PROJECTED}}
every_way = pytest.mark.parametrize("options", WAYS.values(), ids=WAYS)


# --- equations -------------------------------------------------------------------------------------------------------


@every_way
def test_scores_are_those_of_the_equations(options: dict) -> None:
    model = grown(build(**options)).double().eval()
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    tokens = text(3, 7)
    scores, _ = model(tokens)
    assert scores.shape == (3, 7, len(WORDS))
    for row, words in enumerate(tokens.tolist()):
        expected = reference.language_model_scores(words, weights, layers=2)
        np.testing.assert_allclose(scores[row].detach(), expected, rtol=1e-9)


# --- sizes and presets -----------------------------------------------------------------------------------------------


# Parameters with the paper's dictionary of 10,000 words, and the width.
ZAREMBA = {
    "zaremba_lm_small": (4_651_600, 200),
    "zaremba_lm_small_wt": (2_651_600, 200),
    "zaremba_lm_small_pr": (4_691_800, 200),
    "zaremba_lm_small_wt_pr": (2_691_800, 200),
    "zaremba_lm_medium": (19_775_200, 650),
    "zaremba_lm_medium_wt": (13_275_200, 650),
    "zaremba_lm_large": (66_022_000, 1500),
    "zaremba_lm_large_wt": (51_022_000, 1500),
}
GAL = ("gal_lm_small", "gal_lm_small_wt", "gal_lm_large", "gal_lm_large_wt")  # with another dropout
PAPERS = ZAREMBA | {name: ZAREMBA[name.replace("gal", "zaremba")] for name in GAL}
for depth, units in ((8, 890), (9, 860), (10, 830)):
    network, table = reference.highway_parameters(units, depth) + 10_000, 10_000 * units
    PAPERS[f"highway_lm_{depth}x{units}"] = network + 2 * table, units
    PAPERS[f"highway_lm_{depth}x{units}_wt"] = network + table, units


def papers_model(preset: str, caplog: pytest.LogCaptureFixture, **options: Any) -> tuple[StreamLM, str]:
    """A preset at its own sizes, and the line it logs."""
    defaults = getattr(ARCH_MODEL_REGISTRY[preset], "__dataclass")()
    widths = {name: getattr(defaults, name) for name in ("decoder_embed_dim", "decoder_hidden_size")}
    with torch.device("meta"), caplog.at_level(logging.INFO):
        return build(preset, words=Sized(), **widths, **options), caplog.messages[-1]


@pytest.mark.parametrize("preset", PAPERS)
def test_sizes_are_the_papers(preset: str, caplog: pytest.LogCaptureFixture) -> None:
    expected, width = PAPERS[preset]
    model, line = papers_model(preset, caplog)
    tied = "_wt" in preset
    assert (model.decoder.embed_tokens is model.decoder.output.head) == tied
    # Rows of <s> and <pad> in each table, and their output biases.
    assert count(model) == expected + 2 * (1 if tied else 2) * width + 2
    assert line.startswith(f"{preset}: shares {'input = output (weight tying)' if tied else 'nothing'} by method plain")
    assert f"; {count(model):,} parameters: " in line
    assert f"; {expected:,} without the rows of <s> and <pad>" in line


def test_sizes_of_highway_models_are_those_published_in_millions() -> None:
    millions = [round(size / 1e6, 2) for name, (size, _) in PAPERS.items() if "highway" in name]
    assert millions == [32.08, 23.18, 32.02, 23.42, 31.78, 23.48]


@pytest.mark.parametrize("preset", ["zaremba_lm_small_pr", "zaremba_lm_small_wt_pr"])
def test_the_bias_of_p_has_200_parameters(preset: str, caplog: pytest.LogCaptureFixture) -> None:
    model, line = papers_model(preset, caplog, no_projection_bias=True)
    assert model.output.projection is not None
    assert model.output.projection.bias is None
    assert f" {PAPERS[preset][0] - 200:,} without the rows" in line


@pytest.mark.parametrize("preset", ZAREMBA)
def test_a_preset_has_the_dropout_and_range_of_its_size(preset: str) -> None:
    defaults = getattr(ARCH_MODEL_REGISTRY[preset], "__dataclass")()
    expected = {"small": (0, 0.1), "medium": (0.5, 0.05), "large": (0.65, 0.04)}
    assert (defaults.dropout, defaults.init_range) == expected[preset.split("_")[2]]


@pytest.mark.parametrize("preset", ["gal_lm_small", "zaremba_lm_medium", "highway_lm"])
def test_dropout_in_evaluation_is_refused(preset: str) -> None:
    model = build(preset)
    model.make_generation_fast_(retain_dropout=False)
    with pytest.raises(ValueError, match=r"--retain-dropout: needs a model without recurrent layers; got one with"):
        model.decoder.make_generation_fast_(name="decoder", retain_dropout=True, retain_dropout_modules=None)


def test_every_parameter_starts_uniform() -> None:
    model = build("zaremba_lm_small_wt_pr", decoder_embed_dim=50, decoder_hidden_size=50, init_range=0.04)
    for name, parameter in model.named_parameters():
        numbers = parameter.detach()
        assert numbers.abs().max() <= 0.04, name
        if numbers.numel() > 100:
            assert numbers.std().item() == pytest.approx(0.04 / 3**0.5, rel=0.1), name
            assert numbers.abs().max() > 0.035, name
    assert model.decoder.stack.bias[0].detach().mean().abs() < 0.01  # no forget bias
    assert not model.decoder.output.weight[WORDS.pad()].any()


def test_every_word_of_a_band_starts_somewhere() -> None:
    bands = {**TIED, "adaptive_softmax_cutoff": "5,8", "adaptive_softmax_factor": 2.0}
    zeros = [table[0].weight.eq(0).all(1) for table in build(**bands).decoder.embed_tokens.embeddings]
    assert torch.cat(zeros).nonzero().flatten().tolist() == [WORDS.pad()]


# --- sharing, copies, checkpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["tied_lstm_lm", "feedforward_lm"])
def test_a_checkpoint_of_another_dictionary_is_refused(preset: str) -> None:
    with pytest.raises(ValueError, match="dict.txt: needs the 19 words .* that the model was trained with; got 17. Us"):
        build(preset, **TIED).load_state_dict(build(preset, words=dictionary(19), **TIED).state_dict())


@pytest.mark.parametrize("preset", ["tied_lstm_lm", "feedforward_lm"])
def test_a_checkpoint_with_fewer_words_of_output_is_loaded(preset: str) -> None:
    """What `--output-dictionary-size` makes: the model's dictionary is that of the output."""
    models = [build(preset, output_words=dictionary(9)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    found, expected = (model.decoder.embed_tokens.weight for model in reversed(models))
    assert len(found) == len(WORDS)
    assert torch.equal(found, expected)
    with pytest.raises(ValueError, match="needs the 17 words .* that the model was trained with; got 19. Us"):
        build(preset, words=dictionary(19), output_words=dictionary(9)).load_state_dict(models[0].state_dict())


@pytest.mark.parametrize("options", [{}, TIED], ids=["untied", "tied"])
def test_pretrained_and_frozen_embeddings(options: dict, tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "vectors.txt", 6)
    model = build(decoder_embed_path=path, decoder_freeze_embed=True, **options)
    table = model.decoder.embed_tokens
    assert table.weight[WORDS.index("word0")].eq(0.5).all()
    assert not table.weight[WORDS.index("word1")].eq(0.5).any()
    assert not table.weight.requires_grad
    assert model.decoder.output.weight.requires_grad == (not options)
    model(text(3, 5), target=text(3, 5)).loss.backward()
    assert table.weight.grad is None
    assert model.decoder.output.head.bias is not None
    assert model.decoder.output.head.bias.grad is not None


def test_the_log_counts_the_words_of_the_input(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_vectors(tmp_path / "vectors.txt", 6)
    with caplog.at_level(logging.INFO):
        build(output_words=dictionary(9), decoder_embed_path=path)
    assert f"--decoder-embed-path: 1 of 17 words have a vector in {path}" in caplog.messages


# --- dropout, precision ----------------------------------------------------------------------------------------------


def test_dropout_between_layers_is_not_that_of_inputs_and_outputs() -> None:
    model = grown(build(dropout=0.5, decoder_dropout_in=0.0, decoder_dropout_out=0.0))
    tokens = text(3, 5)
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    one_layer = grown(build(dropout=0.5, decoder_dropout_in=0.0, decoder_dropout_out=0.0, decoder_layers=1))
    assert torch.equal(one_layer(tokens)[0], one_layer(tokens)[0])


every_variational = pytest.mark.parametrize("preset", ["tied_lstm_lm", "gal_lm_large", "highway_lm"])
REPEATED = torch.tensor([[5, 6, 5, 7, 6, 5], [8, 8, 9, 5, 9, 4]] * 3)
ONE_PLACE = {f"dropout_{place}": 0.0 for place in ("words", "inputs", "states", "outputs")}


@every_variational
def test_variational_dropout_of_outputs_has_one_mask_for_all_steps(preset: str) -> None:
    model = grown(build(preset, **{**ONE_PLACE, "dropout_outputs": 0.5})).double()
    whole, masked = (each.extract_features(REPEATED)[0] for each in (copy.deepcopy(model).eval(), model))
    factors = (masked / whole).detach()
    torch.testing.assert_close(factors, factors[:, :1].round().expand_as(factors))
    assert set(factors[:, 0].round().unique().tolist()) == {0.0, 2.0}


@every_variational
def test_variational_dropout_of_words_drops_types(preset: str) -> None:
    model = grown(build(preset, **{**ONE_PLACE, "dropout_words": 0.5}))
    inputs = []
    model.decoder.stack.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0].transpose(0, 1)))
    model(REPEATED)
    kept = (inputs[0] != 0).all(2)
    torch.testing.assert_close(inputs[0], 2 * model.decoder.embed_tokens(REPEATED) * kept.unsqueeze(2))
    assert set(kept.unique().tolist()) == {False, True}
    for row, fates in zip(REPEATED.tolist(), kept.tolist(), strict=True):
        assert len(set(zip(row, fates, strict=True))) == len(set(row))


@every_variational
def test_variational_dropout_of_inputs_and_states_is_the_layers(preset: str) -> None:
    stack = build(preset, **{**ONE_PLACE, "dropout_inputs": 0.2, "dropout_states": 0.4}).decoder.stack
    assert (stack.dropout_i, stack.dropout_h) == (0.2, 0.4)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["dropout", "decoder_dropout_in", "decoder_dropout_out"])
def test_two_kinds_of_dropout_are_refused(place: str) -> None:
    flag = "--" + place.replace("_", "-")
    with pytest.raises(ValueError, match=f"{flag}: needs 0 with variational dropout .* got 0.2. Use one kind"):
        build(dropout_outputs=0.5, **{place: 0.2})


def test_rows_that_fill_a_batch_have_no_words() -> None:
    """``--pad-to-fixed-bsz``: fairseq adds rows of padding, and no lengths of theirs."""
    model = build().eval()
    samples = [{"id": number, "source": row[:-1], "target": row[1:]} for number, row in enumerate(text(3, 7).unbind())]
    losses = []
    for size in (None, 4):
        batch = monolingual_dataset.collate(samples, WORDS.pad(), WORDS.eos(), pad_to_bsz=size)
        assert len(batch["target"]) == (size or 3)
        losses.append(model(target=batch["target"], **batch["net_input"]).loss)
    torch.testing.assert_close(losses[1], losses[0])
