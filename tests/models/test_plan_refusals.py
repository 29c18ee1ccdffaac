"""Settings of every family that do not fit together or are out of range, and the messages that follow."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from .families import ALL, BANDS, DECODER
from .plans import CUTOFF, MORE, OTHERS, THEIRS, V, family_and_settings, plan_of, task

TIED = "--share-decoder-input-output-embed"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(
        (name, {"sharing_method": "l3"}, "--sharing-method: needs a registered method; got 'l3'. Use one of: plain, ")
        for name in ("lstm_nmt", "transformer", "lightconv", "transformer_lm", "lightconv_lm")
    ),
    # Shared tables of two widths, and who asked for them.
    ("lstm_nmt_twwt", {"decoder_out_embed_dim": 7}, "--arch lstm_nmt_twwt: needs --decoder-embed-dim equal .* 6 and 7"),
    ("lstm_nmt_twwt", {"encoder_embed_dim": 8}, "--arch lstm_nmt_twwt: needs --encoder-embed-dim equal .* 8 and 6"),
    ("lstm_nmt", {**DECODER, "decoder_out_embed_dim": 7}, f"{TIED}: needs .* 6 and 7. Use --decoder-out-embed-dim 6"),
    ("lstm_nmt_wt", {**ALL, "decoder_out_embed_dim": 7}, "--share-all-embeddings: needs .* got 6 and 7"),
    ("tied_lstm_lm", {**DECODER, "decoder_hidden_size": 8}, f"{TIED}: .*, or --projection; got 6 and 8. Use --proj"),
    ("bengio_lm", DECODER, f"{TIED}: needs .* without --skip-connections; got 6 and .*. Use --deep-output linear."),
    (
        "transformer_lm",
        {**DECODER, "decoder_input_dim": 16, "decoder_output_dim": 8},
        f"{TIED}: needs input vectors as wide as features; got 16 and 8. Use --decoder-output-dim 16, or --projection",
    ),
    # Dictionaries, and files of vectors.
    ("lstm_nmt_twwt", {"source": MORE}, "got dictionaries of 22 and 20 words. Use the data folder of the training"),
    ("dl4mt_twwt", {"target": OTHERS}, "--arch dl4mt_twwt: .* differ at entry 4 .'word0' and 'wort0'"),
    (
        "transformer",
        {"merge_src_tgt_embed": True, "target": OTHERS},
        "--merge-src-tgt-embed: needs .* got 'wort0' at 4, where that has 'word0'. Use .*--joined-dictionary",
    ),
    ("lstm_nmt_twwt", {"encoder_embed_path": "a.txt", "decoder_embed_path": "b.txt"}, "got .*'a.txt' and .*'b.txt'"),
    (
        "transformer",
        {"merge_src_tgt_embed": True, "encoder_embed_path": "a.txt", "decoder_embed_path": "b.txt"},
        "--merge-src-tgt-embed: needs one file of vectors .*; got .*'a.txt' and .*'b.txt'",
    ),
    *(
        (preset, {**tied, "source": MORE}, f"--output-dictionary-size: needs .*; got 20 of 22 words with .* {head}. L")
        for preset, tied, head in (
            ("tied_lstm_lm", {**DECODER, "output_layer": "nce"}, "nce"),
            ("tied_lstm_lm", {**DECODER, "output_bias_init": "uniform"}, "softmax"),
            ("tied_lstm_lm", {**DECODER, **CUTOFF}, "adaptive"),
            ("transformer_lm", {**DECODER, "output_layer": "short-list"}, "short-list"),
            ("lightconv_lm", BANDS, "adaptive"),
        )
    ),
    ("feedforward_lm", {"output_layer": "adaptive"}, "needs a recurrent language model, .* got --arch feedforward_lm"),
    # Constants.
    ("tied_lstm_lm", {"logit_soft_cap": 0.0}, "--logit-soft-cap: needs a positive, finite number; got 0.0. Use 30"),
    ("transformer", {"embedding_scale": -1.0}, "--embedding-scale: needs a positive, finite number; got -1.0. Use 1"),
    ("tied_lstm_lm", {"output_layer": "tree", "logit_scale": 0.1}, "--logit-scale: .* 0.1 with --output-layer tree"),
    ("transformer", {**THEIRS, "logit_soft_cap": 9.0}, "--logit-soft-cap: .*; got 9.0 with --output-layer adaptive"),
    (
        "transformer_lm",
        {"character_embeddings": True, "embedding_scale": 2.0},
        "--embedding-scale: needs one table of all words as input; got 2.0 with --character-embeddings. Leave",
    ),
    (
        "transformer_lm",
        {"character_embeddings": True, "input_gradient_scale": 5.0},
        "--input-gradient-scale: needs one table of all words as input; got 5.0 with --character-embeddings. Leave",
    ),
    # P.
    ("tied_lstm_lm", {"projection_bias": True}, "--projection-bias: needs a model with P; got one without. Use"),
    ("tied_lstm_lm", {"no_projection_bias": True}, "--no-projection-bias: needs a model with P; got one without. Use"),
    (
        "tied_lstm_lm",
        {"projection": True, "projection_bias": True, "no_projection_bias": True},
        "--projection-bias: needs to be alone; got --no-projection-bias too. Use one of them",
    ),
    ("transformer", {**THEIRS, "projection": True}, "--projection: needs one table .* --adaptive-softmax-cutoff 8,16"),
    # fairseq's own options.
    ("transformer_lm", {"quant_noise_scalar": 0.1}, "--quant-noise-scalar: needs fairseq's own embeddings; got 0.1"),
    ("transformer", {"tie_adaptive_weights": True}, "--tie-adaptive-weights: needs a language model"),
    ("transformer_lm", {"tie_adaptive_weights": True}, "--tie-adaptive-weights: needs --adaptive-input .* got False"),
    (
        "transformer_lm",
        {
            "tie_adaptive_weights": True,
            "adaptive_input": True,
            "adaptive_softmax_cutoff": "5",
            "character_embeddings": True,
        },
        "--tie-adaptive-weights: needs a table of words as input; got --character-embeddings",
    ),
    (
        "lightconv",
        {"share_all_embeddings": True, "embedding_rank": 4, "encoder_embed_dim": 8},
        "--share-all-embeddings: needs --encoder-embed-dim equal to --decoder-embed-dim; got 8 and",
    ),
    (
        "transformer_lm",
        {"adaptive_input": True, "adaptive_input_cutoff": "8,19"},
        "--adaptive-input-cutoff: needs rising whole numbers between 0 and 20, .*, 2 apart; got 8,19. Use 4,12,",
    ),
    ("transformer_lm", {"adaptive_input": True}, "--adaptive-input: needs --adaptive-input-cutoff; got none"),
    ("transformer_lm", {**BANDS, "adaptive_input_cutoff": "8,12"}, "--tie-adaptive-weights: .* got 8,12 and 8,16"),
    ("lightconv_lm", {**BANDS, "adaptive_input_factor": 4.0}, "needs --adaptive-input-factor equal to .* 4.0 and 2.0"),
    ("transformer_lm", {**BANDS, "decoder_input_dim": 8}, "needs --decoder-input-dim equal to .* got 8 and 16"),
    (
        "transformer_lm",
        {**DECODER, "adaptive_input": True, "adaptive_input_cutoff": "8,16"},
        f"{TIED}: .* --adaptive-input",
    ),
    ("lightconv_lm", {**DECODER, "character_embeddings": True}, f"{TIED}: .* got --character-embeddings"),
    (
        "lightconv_lm",
        {"sharing_method": "cosine", "character_embeddings": True},
        "--sharing-method cosine: needs a table of words as input; got --character-embeddings",
    ),
    # Factorised tables.
    ("transformer", {"embedding_rank": 0}, "--embedding-rank: needs a positive whole number; got 0. Use 128"),
    ("dynamicconv", {"embedding_rank": 4, **THEIRS}, "--embedding-rank: needs .* got --adaptive-softmax-cutoff 8,16"),
    ("transformer_lm", {"embedding_rank": 4, **BANDS}, "--embedding-rank: needs .* got --adaptive-input True"),
    ("transformer", {"embedding_rank": 4, "encoder_embed_path": "v.txt"}, "-rank: .* --encoder-embed-path v"),
    ("highway_lm", {"transform_bias": float("nan")}, "--transform-bias: needs a finite number; got nan. Use -2, say"),
    # Bands.
    (
        "transformer_lm",
        {"adaptive_softmax_cutoff": "8,16", "adaptive_softmax_factor": 0.0},
        "--adaptive-softmax-factor: needs a finite number above 0; got 0.0. Use 4, say",
    ),
    (
        "transformer",
        {"adaptive_softmax_cutoff": [8, 16], "adaptive_softmax_dropout": 7.0},
        r"--adaptive-softmax-dropout: needs a probability in \[0, 1\); got 7.0. Use 0.3, say",
    ),
    *(
        ("tied_lstm_lm", {**DECODER, "adaptive_softmax_cutoff": ends}, f"-cutoff: needs rising .* {V}, .* {ends}. Use")
        for ends in ("foo", "8,5", "5,5", "0,5", f"5,{V}", "100", "5.5")
    ),
    # A tied band is fairseq's, whose second row is drawn anew.
    *(
        (
            "tied_lstm_lm",
            {**DECODER, "adaptive_softmax_cutoff": ends},
            f"-cutoff: .*, 2 apart; got {ends}. Use 4,12, say",
        )
        for ends in ("1", "5,6", f"{V - 1}")
    ),
    ("transformer", {"adaptive_softmax_cutoff": [16, 8]}, r"--adaptive-softmax-cutoff: needs rising .*; got \[16, 8\]"),
    (
        "transformer_lm",
        {"adaptive_input": True, "adaptive_input_cutoff": "16,8"},
        "--adaptive-input-cutoff: needs rising whole numbers between 0 and 20, .*; got 16,8. Use 4,12,",
    ),
    ("tied_lstm_lm", {**CUTOFF, "adaptive_softmax_factor": 40.0}, r"--adaptive-softmax-factor: .* got 40.0. Use"),
    ("tied_lstm_lm", {**CUTOFF, "adaptive_softmax_factor": 0.5}, "--adaptive-softmax-factor: .* got 0.5"),
    ("tied_lstm_lm", {**CUTOFF, "adaptive_softmax_factor": 4.0}, "-softmax-factor: .* got 4.0. Use 2, or fewer bands"),
    (
        "lightconv_lm",
        {**BANDS, "adaptive_input_factor": 100.0, "adaptive_softmax_factor": 100.0},
        r"--adaptive-input-factor: needs 1 or more, and a last band, of 16 / factor\^2.*; got 100.0",
    ),
    ("tied_lstm_lm", {**CUTOFF, "sharing_method": "cosine"}, f"-method cosine: needs bands .* 5,8 without {TIED}"),
    (
        "dynamicconv",
        {"sharing_method": "distance", **THEIRS},
        "--sharing-method distance: needs bands .* got --adaptive-softmax-cutoff 8,16 without --tie-adaptive-weights",
    ),
    (
        "tied_lstm_lm",
        {**DECODER, **CUTOFF, "decoder_freeze_embed": True},
        "--decoder-embed-path, --decoder-freeze-embed: need one input table .* got tied bands.* 5,8",
    ),
    # Output layers.
    ("tied_lstm_lm", {"output_layer": "softmaks"}, "--output-layer: needs a registered layer; got 'softmaks'"),
    ("tied_lstm_lm", {"output_layer": "adaptive"}, "--output-layer adaptive: .* got none"),
    ("tied_lstm_lm", {"output_layer": "nce", **CUTOFF}, "--output-layer nce: .* got --adaptive-softmax-cutoff 5,8"),
    ("transformer_lm", {"output_layer": "negative-sampling"}, "-sampling: needs word2vec.*; got .*. Use sampled"),
    ("word2vec_skipgram", {"output_layer": "classes"}, "-layer classes: .*; got .*word2vec_skipgram. Use negative-sa"),
    (
        "word2vec_skipgram",
        {"word2vec_output": "tree", "output_layer": "softmax"},
        "--word2vec-output: needs one of negative, full, tree, and no other --output-layer; got tree with .* softmax",
    ),
    ("word2vec_skipgram", {"word2vec_output": "half"}, "--word2vec-output: needs one of negative, full, .*; got half"),
    ("word2vec_skipgram", {**DECODER, "word2vec_output": "tree"}, f"--output-layer tree: .* got {TIED}. Use"),
    ("zaremba_lm_small_wt", {"output_layer": "tree"}, "-layer tree: .* --arch zaremba_lm_small_wt, which ties its"),
    ("transformer_lm", {"output_layer": "tree", "sharing_method": "cosine"}, "--output-layer tree: .* got cosine"),
    ("tied_lstm_lm", {"output_layer": "tree", "tree": "classes"}, "--tree classes: needs --class-file; got none"),
    ("tied_lstm_lm", {"output_layer": "short-list"}, "--short-list: needs 1 word or more with .* short-list; got 0"),
    ("tied_lstm_lm", {"output_bias_init": "zero", **CUTOFF}, "--output-bias-init: .* zero with .*-cutoff 5,8"),
    ("transformer_lm", {"output_bias_init": "zero"}, "--output-bias-init: .* got zero with --output-layer softmax"),
    # Ranges.
    ("lstm_nmt", {"encoder_layers": 0}, "--encoder-layers: needs a positive whole number; got 0"),
    ("lstm_nmt", {"decoder_hidden_size": -5}, "--decoder-hidden-size: needs a positive whole number; got -5"),
    ("lstm_nmt", {"decoder_dropout_in": -0.1}, r"--decoder-dropout-in: .* got -0.1"),
    ("lstm_nmt", {"dropout": 1.5}, r"--dropout: needs a probability in \[0, 1\); got 1.5"),
    ("tied_lstm_lm", {"dropout_states": 1.0}, r"--dropout-states: needs a probability in \[0, 1\); got 1.0"),
    ("tied_lstm_lm", {"init_range": math.inf}, "--init-range: needs a positive, finite number; got inf"),
    ("highway_lm", {"decoder_depth": 0}, "--decoder-depth: needs a positive whole number; got 0. Use 10"),
    ("feedforward_lm", {"ngram_order": 1}, "--ngram-order: needs 2 or more; got 1. Use 5"),
    ("word2vec_cbow", {"negatives": 10**12}, "--negatives: needs 1 to 10,000; got 1000000000000"),
    ("word2vec_cbow", {"noise_power": 1.5}, r"--noise-power: needs a number in \[0, 1\]; got 1.5"),
    ("word2vec_cbow", {"noise_for": "all"}, "--noise-for: needs one of block, centre, pair; got all"),
    ("word2vec_cbow", {"decoder_embed_dim": 0}, "--decoder-embed-dim: needs a positive whole number; got 0"),
    ("tied_lstm_lm", {"output_bias_init": "uni"}, "--output-bias-init: needs one of zero, uniform, unigram; got uni"),
    ("tied_lstm_lm", {"tree": "high"}, "--tree: needs one of huffman, balanced, classes; got high"),
    ("transformer_lm", {"classes": 0}, "--classes: needs 1 or more; got 0"),
    ("lightconv_lm", {"noise_samples": 0}, "--noise-samples: needs 1 to 1,000,000; got 0"),
    ("feedforward_lm", {"noise_power": math.nan}, r"--noise-power: needs a number in \[0, 10\]; got nan"),
    ("tied_lstm_lm", {"noise_log_z": -1e4}, "--noise-log-z: needs a logarithm between -1000 and 1000; got -10000"),
]


@pytest.mark.parametrize(
    ("preset", "options", "message"), REFUSED, ids=[f"{case[0]} {case[2][:50]}" for case in REFUSED]
)
def test_what_cannot_work_is_refused(preset: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_of(preset, **options)


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("tied_lstm_lm", {"classes": 7}, "--classes: needs --output-layer classes; got 7 with --output-layer softmax"),
        ("transformer_lm", {"noise_samples": 7}, "--noise-samples: .* got 7 with --output-layer softmax. Use .* nce"),
        ("feedforward_lm", {"output_layer": "tree", "noise_power": 0.5}, "--noise-power: .* sampled; .* with .* tree"),
        ("lightconv_lm", {"own_noise": True}, "--own-noise: needs --output-layer nce or sampled; got True"),
        ("tied_lstm_lm", {"output_layer": "sampled", "noise_log_z": 9.0}, "--noise-log-z: .* got 9"),
        ("tied_lstm_lm", {"output_layer": "nce", "tree": "balanced"}, "--tree: .* got balanced"),
        ("tied_lstm_lm", {"adaptive_softmax_factor": 2.0}, "--adaptive-softmax-factor: .* got 2"),
        ("tied_lstm_lm", {"class_file": "c.txt"}, "--class-file: needs --output-layer classes or tree; got c.txt with"),
        ("tied_lstm_lm", {"class_file": "c.txt", "output_layer": "tree"}, "--class-file: .* got .* huff"),
        ("transformer_lm", {"embedding_rank": 16}, "--embedding-rank: needs less than 16, the .*; got 16. Use 8, or"),
        ("tied_lstm_lm", {"output_layer_options": "a=1"}, "-options: needs a registered .*; got a=1 with .* softmax"),
        ("word2vec_cbow", {"word2vec_output": "tree", "negatives": 7}, "--negatives: .*; got 7 with .* tree"),
        ("word2vec_cbow", {"output_layer": "softmax", "noise_for": "pair"}, "--noise-for: .* got pair with .* softmax"),
    ],
)
def test_trains_with_no_option_that_has_no_use(preset: str, options: dict[str, Any], message: str) -> None:
    """Models are built with them, for checkpoints of version 0.1.2."""
    model_class, cfg = family_and_settings(preset, options)
    model = model_class.build_model(cfg, task())
    with pytest.raises(ValueError, match=message):
        model.check_training(SimpleNamespace(takes_the_models_loss=True), cfg)


def test_options_that_have_a_use_are_trained_with() -> None:
    for preset, options in (
        ("tied_lstm_lm", {**CUTOFF, **DECODER}),
        ("transformer_lm", {**BANDS, "output_layer": "adaptive"}),
        ("word2vec_cbow", {"negatives": 7, "noise_for": "pair"}),
        ("lightconv_lm", {"output_layer": "sampled", "noise_samples": 3}),
    ):
        model_class, cfg = family_and_settings(preset, options)
        model_class.build_model(cfg, task()).check_training(SimpleNamespace(takes_the_models_loss=True), cfg)


def test_a_beginning_that_is_predicted_needs_the_softmax() -> None:
    model_class, cfg = family_and_settings("transformer_lm", {"output_layer": "nce"})
    model = model_class.build_model(cfg, task())
    task_of_lm = SimpleNamespace(args=SimpleNamespace(add_bos_token=True))
    criterion = SimpleNamespace(takes_the_models_loss=True, task=task_of_lm)
    with pytest.raises(ValueError, match="--add-bos-token: needs --output-layer softmax.*; got --output-layer nce"):
        model.check_training(criterion, cfg)
    criterion.task.args.add_bos_token = False
    model.check_training(criterion, cfg)
