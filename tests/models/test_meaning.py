"""Which options settle what a model's weights mean: every option has been decided about, and presets count as flags."""

from types import SimpleNamespace
from typing import Any

import pytest
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

import fairseq_tiedemb.plugin  # noqa: F401 (registers the models)
from fairseq_tiedemb.checkpoints.meaning import differences_of_settings
from fairseq_tiedemb.training.same_meaning import other_meaning

# With another value there are other parameters, or parameters of other shapes.
OTHER_WEIGHTS = set(
    """
    adaptive_softmax_cutoff adaptive_softmax_factor cell decoder_depth decoder_embed_dim decoder_hidden_size
    decoder_layers decoder_out_embed_dim joint_dim mixtures encoder_embed_dim encoder_hidden_size encoder_layers
    ngram_order short_list skip_connections
    """.split()
)
# How weights start, what is done to them in training alone, and lengths. Of a file of classes, a checkpoint has all
# that it said; `word2vec_output` is the former name of `output_layer`, as below.
TRAINING = set(
    """
    class_file decoder_embed_path decoder_freeze_embed encoder_embed_path encoder_freeze_embed init_range
    input_gradient_scale max_source_positions max_target_positions negatives noise_for noise_log_z noise_power
    noise_samples output_bias_init own_noise transform_bias unit_rows word2vec_output
    """.split()
)


def test_word2vecs_output_layer_has_two_names() -> None:
    former = [{"_name": "word2vec_skipgram", "word2vec_output": name} for name in ("negative", "full", "tree")]
    present = [
        {"_name": "word2vec_skipgram", "output_layer": name} for name in ("negative-sampling", "softmax", "tree")
    ]
    for place, settings in enumerate(former):
        assert list(differences_of_settings(settings, {**present[place], "word2vec_output": None})) == []
        assert list(differences_of_settings(settings, present[place - 1]))


def test_a_number_is_what_it_counts_as() -> None:
    first, other = ({"_name": "tied_lstm_lm", "embedding_scale": value} for value in (2.0, 2))
    assert list(differences_of_settings(first, other)) == []
    assert list(differences_of_settings(first, {**other, "embedding_scale": 3})) == [("--embedding-scale", "2", "3")]


OURS = {name: model for name, model in MODEL_REGISTRY.items() if model.__module__.startswith("fairseq_tiedemb")}


@pytest.mark.parametrize("name", [name for name in OURS if name in MODEL_DATACLASS_REGISTRY])
def test_every_option_has_been_decided_about(name: str) -> None:
    bases = MODEL_DATACLASS_REGISTRY[name].__mro__  # fairseq's own options are fairseq's to judge
    ours = [base for base in bases if base.__module__.partition(".")[0] in ("fairseq_tiedemb", "types")]
    options = {option for base in ours for option in vars(base).get("__annotations__", ()) if option[0] != "_"}
    left = {option for option in options if "dropout" not in option} - OTHER_WEIGHTS - TRAINING
    left -= {choice.option for choice in OURS[name].meaning}
    assert left == set(), "in checkpoints/meaning.py, or above with its reason?"


def test_every_model_of_ours_has_a_table() -> None:
    assert len(OURS) > 20
    assert [name for name, model in OURS.items() if not getattr(model, "meaning", ())] == []


def model(name: str, **options: Any) -> SimpleNamespace:
    return SimpleNamespace(_name=name, **options)


@pytest.mark.parametrize(
    ("trained", "now"),
    [
        (model("zaremba_lm_small_wt"), model("tied_lstm_lm", share_decoder_input_output_embed=True)),
        (model("zaremba_lm_small_wt_pr"), model("zaremba_lm_small_wt", projection=True, projection_bias=True)),
        (model("zaremba_lm_small_wt"), model("zaremba_lm_small_wt", share_decoder_input_output_embed=True)),
        (model("lstm_nmt_twwt"), model("lstm_nmt", share_all_embeddings=True)),
        # A checkpoint of before --output-layer.
        (
            model("word2vec_skipgram", word2vec_output="negative"),
            model("word2vec_skipgram", output_layer="negative-sampling", word2vec_output=None),
        ),
        (model("dl4mt_twwt", share_decoder_input_output_embed=True), model("dl4mt_twwt")),
        (model("transformer", decoder_attention_heads=4), model("tied_transformer", decoder_attention_heads=4)),
        (model("tied_transformer"), model("tied_transformer", activation_fn="relu")),  # was not kept once
        (model("of another plugin", sharing_method="cosine"), model("transformer")),
        (
            model("tied_lstm_lm", output_layer="softmax"),
            model("tied_lstm_lm", output_layer="adaptive"),
        ),  # by its cutoff
        (None, model("tied_lstm_lm", sharing_method="cosine")),
    ],
)
def test_the_same_by_other_words(trained: Any, now: Any) -> None:
    assert list(other_meaning(trained, now)) == []


@pytest.mark.parametrize(
    ("trained", "now", "difference"),
    [
        (model("tied_lstm_lm"), model("tied_lstm_lm", sharing_method="cosine"), ("plain", "cosine")),
        (model("zaremba_lm_small_wt"), model("zaremba_lm_small"), (True, False)),
        (model("zaremba_lm_small_wt_pr"), model("zaremba_lm_small_wt", projection_bias=True), (True, False)),
        (model("zaremba_lm_small_wt_pr"), model("zaremba_lm_small_wt_pr", no_projection_bias=True), (False, True)),
        (model("tied_transformer", embedding_rank=4), model("tied_transformer", embedding_rank=6), ("4", "6")),
        (model("lstm_nmt_wt"), model("lstm_nmt_twwt"), (False, True)),
        (model("bengio_lm"), model("bengio_lm", activation_fn="relu"), ("tanh", "relu")),
        (model("bengio_lm", deep_output="relu"), model("bengio_lm", deep_output="linear"), ("relu", "linear")),
        (model("tied_lstm_lm"), model("tied_lstm_lm", output_layer_options="steps=2"), ("none", "steps=2")),
        (model("transformer"), model("tied_transformer", sharing_method="l2-input"), ("plain", "l2-input")),
        (model("tied_transformer", sharing_method="l2-input"), model("transformer"), ("l2-input", "plain")),
        (
            model("tied_lightconv", weight_softmax=True),
            model("tied_lightconv", weight_softmax=False),
            ("True", "False"),
        ),
        (
            model("tied_transformer_lm", decoder_attention_heads=4),
            model("tied_transformer_lm", decoder_attention_heads="8"),
            ("4", "8"),
        ),
    ],
)
def test_another_meaning_is_found(trained: Any, now: Any, difference: tuple) -> None:
    [(_, *found)] = other_meaning(trained, now)
    assert tuple(found) == difference
