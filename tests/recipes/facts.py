"""What the recipes train and how they score it, row by row: the papers' settings, and what sets rows apart."""

from typing import Any

METHODS = ("plain", "l2-input", "square-output", "distance", "cosine")
ALL_METHODS = (*METHODS, "scaled", "scaled-words", "scaled-cosine", "fixnorm", "half-swap")
# Learning rates in the ranking other than 1.
RATES = {"scaled": 0.5, "scaled-words": 0.5, "scaled-cosine": 0.25, "fixnorm": 0.25}
TIED, ALL = "--share-decoder-input-output-embed", "--share-all-embeddings"
LSTM = {"small": "", "wt": "_wt", "pr": "_pr", "wt-pr": "_wt_pr"}
SMALL = {row: f"--arch zaremba_lm_small{end}" for row, end in LSTM.items()}
OWN_METHODS = {method: f"--arch tied_transformer --sharing-method {method}" for method in METHODS}
LAYERS = {
    "softmax": "softmax",
    "classes": "classes",
    "classes-exchange": "classes --class-file {work}/classes.txt",
    "nce": "nce --noise-samples 500",
    "nce-100": "nce --noise-samples 100",
    "nce-100-own": "nce --noise-samples 100 --own-noise",
    "sampled": "sampled --noise-samples 500",
    "tree": "tree",
    "tree-exchange": "tree --tree classes --class-file {work}/classes.txt",
    "short-list": "short-list --short-list 2000",
    "short-list-5000": "short-list --short-list 5000",
}
WORD2VEC = {
    "untied": "",
    "tied": TIED,
    **{f"tied-{method}": f"{TIED} --sharing-method {method}" for method in METHODS[1:]},
    "full": "--word2vec-output full",
    "full-tied": f"--word2vec-output full {TIED}",
    **{f"full-tied-{m}": f"--word2vec-output full {TIED} --sharing-method {m}" for m in METHODS[1:]},
    "tree": "--word2vec-output tree",
}
SKIPGRAM = {row: f"--arch word2vec_skipgram {rest}" for row, rest in WORD2VEC.items()}
BANDS = "--adaptive-input --adaptive-input-cutoff 2000,6000 --adaptive-softmax-cutoff 2000,6000"
OURS, THEIRS = (
    "--criterion tied_cross_entropy",
    "--arch lstm --encoder-bidirectional --criterion label_smoothed_cross_entropy",
)
# Of the table of ingredients: the options that set a row apart from all ingredients, and the value of each.
INGREDIENTS: dict[str, dict[str, Any]] = {
    "all": {},
    "without-tying": {"arch": "gal_lm_small"},
    "without-projection": {"decoder_embed_dim": 322, "decoder_hidden_size": 322, "projection": False},
    "without-weight-dropout": {"weight_dropout": 0.0},
    "without-state-dropout": {"dropout_states": 0.0},
    "without-activation-regularization": {"activation_regularization": 0.0, "temporal_activation_regularization": 0.0},
    "without-random-length": {"random_length": False},
    "without-weight-decay": {"weight_decay": 0.0},
    "with-augmented-loss": {"augmented_loss": 10.0, "augmented_temperature": 20.0},
    "with-projection-regularization": {"projection_regularization": 0.15},
    "with-cosine-regularization": {"cosine_regularization": 1.0},
    "with-scaled-cosine": {"sharing_method": "scaled-cosine"},
    "with-mixture": {"output_layer": "mixture", "clip_norm": 2.0},
}
DL4MT = ("dl4mt", "dl4mt_wt", "dl4mt_twwt")
# What sets each row of a recipe apart: everything else in its training is that of the other rows with the same words
# before the last one. None: nothing is trained. {work} is the folder of the corpus.
ROWS: dict[str, dict[str, str | None]] = {
    "train-table5-large.sh": {
        "medium": "--arch zaremba_lm_medium",
        "medium-wt": "--arch zaremba_lm_medium_wt",
        "large": "--arch zaremba_lm_large",
        "large-wt": "--arch zaremba_lm_large_wt",
        "gal": "--arch gal_lm_large",
        "gal-wt": "--arch gal_lm_large_wt",
        "rhn": "--arch highway_lm_8x890",
        "rhn-wt": "--arch highway_lm_9x860_wt",
    },
    "train-table6-small.sh": {
        **SMALL,
        "wt-pr-no-bias": "--arch zaremba_lm_small_wt_pr --no-projection-bias",
        "small-early-decay": "--arch zaremba_lm_small --force-anneal 5",
        "kn5": None,
    },
    **{f"train-table7-{corpus}-small.sh": {**SMALL} for corpus in ("bbc", "imdb", "text8")},
    "train-small-record.sh": {
        "untied": "--arch gal_lm_small",
        "wt": "--arch gal_lm_small_wt",
        "wt-pr": "--arch gal_lm_small_wt --projection --projection-bias --projection-regularization 0.15",
        "wt-pr-no-bias": "--arch gal_lm_small_wt --projection --projection-regularization 0.15",
        **dict.fromkeys(("awd", "awd-dropout", *INGREDIENTS), ""),
    },
    "train-ranking.sh": {
        method: f"--arch zaremba_lm_small_wt --sharing-method {method} --lr {RATES.get(method, 1)}"
        for method in ALL_METHODS
    },
    "train-transformer-lm.sh": {
        "untied": "--arch tied_transformer_lm",
        **{m: f"--arch tied_transformer_lm {TIED} --sharing-method {m}" for m in ALL_METHODS},
        **{f"input-gradient-{s}": f"--arch tied_transformer_lm {TIED} --input-gradient-scale {s}" for s in (0, 5)},
        "adaptive": f"--arch tied_transformer_lm {BANDS}",
        "adaptive-tied": f"--arch tied_transformer_lm {BANDS} --tie-adaptive-weights",
    },
    "train-lecture-nnlm.sh": {
        "bengio": "--arch bengio_lm",
        "plain": "--arch feedforward_lm --deep-output none",
        "deep-untied": "--arch feedforward_lm",
        "deep-tied": "--arch feedforward_lm_wt",
        "relu-dropout": "--arch feedforward_lm_wt --activation-fn relu --skip-connections --dropout 0.2 "
        "--output-layer nce --noise-samples 500 --lr 0.003 --max-update 9300",
    },
    "train-lecture-output-layers.sh": {
        row: f"--arch feedforward_lm --output-bias-init unigram --output-layer {layer}" for row, layer in LAYERS.items()
    },
    "train-lecture-self-normalised.sh": {
        **{
            f"alpha-{alpha}": f"--arch feedforward_lm_wt --output-bias-init uniform --z-loss {alpha}"
            for alpha in ("0", "0.01", "0.1", "1")
        },
        "nce": "--arch feedforward_lm_wt --output-bias-init unigram --output-layer nce --noise-samples 500",
    },
    "train-table2.sh": {
        **SKIPGRAM,
        "cbow": "--arch word2vec_cbow",
        "cbow-tied": f"--arch word2vec_cbow {TIED}",
        "counts": None,
    },
    "train-multi30k.sh": {
        "untied": f"--arch lstm_nmt {OURS}",
        "wt": f"--arch lstm_nmt_wt {OURS}",
        "twwt": f"--arch lstm_nmt_twwt {OURS}",
        "fairseq_untied": THEIRS,
        "fairseq_wt": f"{THEIRS} {TIED}",
        "fairseq_twwt": f"{THEIRS} {ALL}",
        **{arch: f"--arch {arch} {OURS}" for arch in DL4MT},
    },
    "train-table8-dl4mt.sh": {
        f"{pair} {row}": f"--arch dl4mt{end}"
        for pair in ("en-fr", "en-de")
        for row, end in (("untied", ""), ("wt", "_wt"), ("twwt", "_twwt"))
    },
    "train-table8-tatoeba.sh": {
        f"{pair} {row}": f"--arch lstm_nmt{end} --cell gru"
        for pair in ("fr-en", "de-en", "es-en")
        for row, end in (("untied", ""), ("wt", "_wt"), ("twwt", "_twwt"))
    },
    "train-liu-small.sh": {
        f"{corpus} {row}": f"{given} {ALL}"
        for corpus in ("multi30k", "tatoeba-de", "tatoeba-es", "tatoeba-ro")
        for row, given in {**OWN_METHODS, "fairseq": "--arch transformer"}.items()
    }
    | {"multi30k untied": "--arch tied_transformer", "multi30k decoder-tied": f"--arch tied_transformer {TIED}"}
    | {f"multi30k-dynamicconv {m}": f"--arch tied_lightconv {ALL} --sharing-method {m}" for m in METHODS},
    "train-liu-dimensions.sh": {
        f"{method} {width}": OWN_METHODS[method] for width in (64, 128, 256, 512) for method in METHODS
    },
    "train-liu-table1-transformer-wmt16.sh": {
        m: f"--arch tied_transformer_vaswani_wmt_en_de_big {ALL} --sharing-method {m}" for m in METHODS
    },
    "train-liu-table2-dynamicconv-wmt16.sh": {
        m: f"--arch tied_lightconv_wmt_en_de_big {ALL} --sharing-method {m}" for m in METHODS
    },
    "train-liu-table3-transformer-iwslt14.sh": {
        f"{language} {m}": f"--arch tied_transformer_iwslt_de_en {share} --sharing-method {m}"
        for language, share in (("de", ALL), ("es", TIED), ("ro", TIED))
        for m in METHODS
    },
    "train-liu-table4-dynamicconv-iwslt14.sh": {
        m: f"--arch tied_lightconv_iwslt_de_en {ALL} --sharing-method {m}" for m in METHODS
    },
    "measure-export.sh": {m: f"--arch tied_transformer --sharing-method {m} {ALL}" for m in METHODS},
    "measure-served-size.sh": {
        "untied": "--disable-validation",
        "wt": f"--disable-validation {TIED}",
        "twwt": f"--disable-validation {ALL}",
    },
    "measure-table1.sh": dict.fromkeys(
        (
            "wmt14-enfr",
            "wmt15-ende",
            "wmt16-ende",
            "multi30k",
            "tatoeba-de",
            "tatoeba-es",
            "tatoeba-ro",
            "iwslt14-de",
            "iwslt14-es",
            "iwslt14-ro",
        )
    ),
}
# Rows whose training is another in more: optimizer, criterion, regularisation; and widths, each with its learning rate.
APART = {"awd", "awd-dropout", *INGREDIENTS, *DL4MT, "fairseq", "64", "128", "256", "512"}
LIU = {"label_smoothing": 0.1, "adam_betas": "(0.9, 0.98)", "criterion": "tied_cross_entropy", "fp16": True}
WMT = LIU | {"dropout": 0.3, "weight_decay": 0, "max_tokens": 3584, "update_freq": [32], "keep_last_epochs": 10}
IWSLT = LIU | {"dropout": 0.3, "weight_decay": 1e-4, "update_freq": [1], "max_update": 50_000}
BIG = {"encoder_embed_dim": 1024, "encoder_ffn_embed_dim": 4096, "encoder_attention_heads": 16, "decoder_layers": 6}
IWSLT_SIZES = {"encoder_embed_dim": 512, "encoder_ffn_embed_dim": 1024}
IWSLT_SIZES |= {"encoder_attention_heads": 4, "decoder_layers": 6}
ZAREMBA = {"task": "contiguous_lm", "sentence_avg": True, "batch_size": 5, "distributed_world_size": 4, "fp16": True}
FEEDFORWARD = {"task": "contiguous_lm", "batch_size": 50, "tokens_per_sample": 5}
SMALL_NMT = {
    "label_smoothing": 0.1,
    "clip_norm": 1.0,
    "max_tokens": 250,  # on each of four GPUs
    "encoder_hidden_size": 256,
    "optimizer": "adam",
}
# What fairseq understands of the trainings of a recipe, on 4 GPUs: the papers' settings.
FACTS: dict[str, dict[str, Any]] = {
    "train-table5-large.sh": ZAREMBA,
    "train-table6-small.sh": ZAREMBA,
    **{f"train-table7-{corpus}-small.sh": ZAREMBA for corpus in ("bbc", "imdb", "text8")},
    "train-small-record.sh": {
        **{"task": "contiguous_lm", "tokens_per_sample": 35, "max_epoch": 40, "store_ema": True, "force_anneal": 12},
        **{
            "clip_norm": 5.0,
            "dropout_words": 0.1,
            "dropout_inputs": 0.2,
            "dropout_states": 0.1,
            "dropout_outputs": 0.2,
        },
    },
    "train-ranking.sh": {"task": "contiguous_lm", "max_epoch": 5, "force_anneal": 3, "bf16": True},
    "train-transformer-lm.sh": {
        **{"task": "language_modeling", "tokens_per_sample": 256, "batch_size": 2, "bf16": True, "decoder_layers": 3},
        **{"criterion": "tied_cross_entropy", "max_update": 5460, "lr": [2e-3]},
    },
    "train-lecture-nnlm.sh": FEEDFORWARD,
    "train-lecture-output-layers.sh": FEEDFORWARD,
    "train-lecture-self-normalised.sh": FEEDFORWARD | {"criterion": "tied_cross_entropy"},
    "train-table2.sh": {
        "task": "word_pairs",
        "criterion": "word_pairs",
        "optimizer": "row_sgd",
        "max_update": 2 * 9849,
    },
    "train-multi30k.sh": SMALL_NMT | {"max_update": 4000, "dropout": 0.3},
    "train-table8-tatoeba.sh": SMALL_NMT | {"max_update": 6000, "decoder_out_embed_dim": 256},
    "train-table8-dl4mt.sh": {
        **{"optimizer": "adadelta", "adadelta_rho": 0.95, "adadelta_eps": 1e-6, "lr": [1.0], "batch_size": 20},
        **{"sentence_avg": True, "clip_norm": 1.0, "label_smoothing": 0.0, "max_update": 300_000, "fp16": True},
        **{"max_source_positions": 50, "max_target_positions": 50, "encoder_hidden_size": 1000},
    },
    "train-liu-small.sh": {
        "max_update": 2500,
        "max_tokens": 250,
        "lr": [2e-3],
        "encoder_embed_dim": 128,
        "share_all_embeddings": True,
    },
    "train-liu-dimensions.sh": {"max_update": 2500, "share_all_embeddings": True},
    "train-liu-table1-transformer-wmt16.sh": WMT | BIG | {"encoder_layers": 6},
    "train-liu-table2-dynamicconv-wmt16.sh": WMT | BIG | {"encoder_layers": 7, "lr_scheduler": "cosine"},
    "train-liu-table3-transformer-iwslt14.sh": IWSLT | IWSLT_SIZES | {"max_tokens": 1024},
    "train-liu-table4-dynamicconv-iwslt14.sh": IWSLT | IWSLT_SIZES | {"max_tokens": 1000},
    "measure-export.sh": {"max_update": 2500},
    "measure-served-size.sh": {"max_update": 1},
}
WMT_SCORE = {"--post-process": "sentencepiece", "--path": "average.pt"}
IWSLT_SCORE = {"--post-process": "subword_nmt", "--path": "checkpoint_best.pt"}
BEST_BEAM = IWSLT_SCORE | {"--beam": "5", "--lenpen": "1"}
LAST = {"--path": "checkpoint_last.pt", "--task": "contiguous_lm"}
# How a recipe scores its rows: the subsets, then options.
SCORES: dict[str, tuple[str, dict[str, str]]] = {
    "train-table5-large.sh": ("valid test", LAST),
    "train-table6-small.sh": ("train valid test", LAST),
    **{f"train-table7-{corpus}-small.sh": ("train valid test", LAST) for corpus in ("bbc", "imdb", "text8")},
    # The test set is read once, when the validation set has chosen.
    "train-small-record.sh": ("valid valid test", {}),
    "train-ranking.sh": ("valid test", LAST),
    "train-transformer-lm.sh": ("valid test", LAST | {"--task": "language_modeling", "--context-window": "128"}),
    "train-lecture-nnlm.sh": ("valid test", LAST),
    "train-lecture-output-layers.sh": ("valid test", LAST),
    "train-lecture-self-normalised.sh": ("valid test", LAST),
    "train-table2.sh": ("", {}),
    "train-multi30k.sh": ("valid test", BEST_BEAM),
    "train-table8-tatoeba.sh": ("valid test", BEST_BEAM),
    "train-table8-dl4mt.sh": ("valid test", BEST_BEAM),  # en-de: and test1
    "train-liu-small.sh": ("test", BEST_BEAM),
    "train-liu-dimensions.sh": ("test", BEST_BEAM),
    "train-liu-table1-transformer-wmt16.sh": ("test", WMT_SCORE | {"--beam": "4", "--lenpen": "0.6"}),
    "train-liu-table2-dynamicconv-wmt16.sh": ("test", WMT_SCORE | {"--beam": "5", "--lenpen": "0.5"}),
    "train-liu-table3-transformer-iwslt14.sh": ("test", BEST_BEAM),
    "train-liu-table4-dynamicconv-iwslt14.sh": ("test", IWSLT_SCORE | {"--beam": "4", "--lenpen": "1"}),
    "measure-export.sh": ("test test test test", BEST_BEAM),  # once to train it, then a round each
    "measure-served-size.sh": ("", {}),
}
