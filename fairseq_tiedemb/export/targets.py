"""Checks whether an export target supports a model; if not, the error names a target or command that does."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)
from fairseq_tiedemb.checkpoints.meaning import MERGED, TYING, preset_of
from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.option_checks import flag_of
from fairseq_tiedemb.sharing import SharingMethod, sharing_method

Settings = Mapping[str, Any]

COMMANDS = "--user-dir of the training with fairseq's commands"
TRANSLATION, LANGUAGE_MODEL = "transformer", "transformer_lm"
TASKS = {TRANSLATION: "translation", LANGUAGE_MODEL: "language_modeling"}
# Names of activation functions: fairseq's, and CTranslate2's.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_accurate": "GELUTanh", "gelu_fast": "GELUTanh", "tanh": "Tanh"}
# Options that neither engine supports, and what they need instead.
REFUSED = {
    "adaptive_softmax_cutoff": "one softmax over all words",
    "adaptive_input": "one table of input vectors",
    "character_embeddings": "one table of input vectors",
    "no_token_positional_embeddings": "positions",
    "no_cross_attention": "a decoder with attention to the encoder",
    "cross_self_attention": "separate self-attention and encoder attention",
    "base_layers": "layers without experts",
    **dict.fromkeys(("scale_fc", "scale_attn", "scale_heads", "scale_resids"), "layers without NormFormer's scales"),
    "quant_noise_pq": "no layer between embeddings and positions",  # transformer_encoder.py:131, _decoder.py:310
    "quant_noise_scalar": "weights that training did not quantize",
}

# Options that the classes of transformers do not have: XGLM and FSMT both, and FSMT, which is post-norm.
OF_EVERY_CLASS = ("encoder_learned_pos", "decoder_learned_pos", "layernorm_embedding", "no_decoder_final_norm")
OF_FSMT = ("encoder_normalize_before", "decoder_normalize_before")


def require(target: str, settings: Settings) -> None:
    """Raises ValueError if a target of ``CHECKS`` does not support a model, with the part and an alternative."""
    if lacking := _lacking(target, settings):
        raise ValueError(f"CHECKPOINT: {lacking}. Use {instead_of(target, settings)}.")


def require_distinct(words: Sequence[str]) -> None:
    """Raises ValueError for a word with two rows, which formats that know rows by their words would confuse."""
    if len(set(words)) < len(words):
        twice = next(word for index, word in enumerate(words) if word in words[:index])
        use = "a dictionary with this word once, and train again"
        raise ValueError(f"--data: needs dictionaries without repeated words; got {twice!r} twice. Use {use}.")


def instead_of(target: str, settings: Settings) -> str:
    """Returns alternatives for a model that a target does not support: other targets, and fairseq's commands."""
    if settings["task"].get("_name") == "word_pairs":
        return f"fairseq-tiedemb vectors, or {COMMANDS}"
    # The others refuse two sizes when they have read the dictionary.
    known = CHECKS if settings["task"].get("output_dictionary_size") in (None, -1) else ["fairseq"]
    others = [f"--to {other}, or" for other in known if other != target and not _lacking(other, settings)]
    return " ".join([*others, COMMANDS])


def sharing_of(settings: Settings) -> SharingMethod:
    """Returns the model's sharing method, which must be registered."""
    return sharing_method(str(settings["model"].get("sharing_method") or "plain"))


def constants_of(settings: Settings) -> Constants:
    """Returns the constants of the model's tables, without that of their training."""
    return Constants.of({**settings["model"], "input_gradient_scale": None})


def stays_tied(settings: Settings) -> bool:
    """Whether tied tables are still one table after folding."""
    options, method = settings["model"], sharing_of(settings)
    own = method.parameters or method.input_parameters or method.feature_map or constants_of(settings).changed()
    narrowed = options.get("embedding_rank") or options.get("projection")
    return method.input_scale is method.scale and not own and not narrowed


def is_untied_in_fairseq(settings: Settings) -> bool:
    """Whether tables that are tied have to be several tables in fairseq.

    Bands have rows of their own; fairseq looks for a softmax beside them where tables are shared
    (transformer_decoder.py:402).
    """
    return not stays_tied(settings) or bool(settings["model"].get("adaptive_softmax_cutoff"))


def needs_bias(needed: str, flag: str, library: str = "fairseq") -> str:
    """Returns an error text: a library has no output bias for a term per word."""
    return f"needs {needed}; got {flag}, which needs an output bias, and {library}'s models have none"


def stock_arch(settings: Settings) -> str | None:
    """fairseq's architecture of the same preset or, failing that, of the same model; None if fairseq has neither."""
    preset, model = (name.removeprefix("tied_") for name in (preset_of(settings["model"]), _name(settings)))
    if model == _name(settings) or model not in ARCH_MODEL_REGISTRY:
        return None
    return preset if ARCH_MODEL_NAME_REGISTRY.get(preset) == model else model


def _name(settings: Settings) -> str:
    """Returns the name of an architecture's model."""
    preset = preset_of(settings["model"])
    return str(ARCH_MODEL_NAME_REGISTRY.get(preset, preset))


def _lacking(target: str, settings: Settings) -> str | None:
    """What a target, or every one, does not support in a model; None if it supports the model."""
    layer = settings["model"].get("output_layer") or "softmax"
    if _name(settings).startswith(("tied_transformer", "tied_lightconv")) and layer not in ("softmax", "adaptive"):
        return f"needs one softmax over all words; got --output-layer {layer}"
    if cap := constants_of(settings).logit_soft_cap:
        return f"needs logits that are affine in the features; got --logit-soft-cap {cap}"
    return CHECKS[target](settings)


def _lacking_in_fairseq(settings: Settings) -> str | None:
    options, arch = settings["model"], preset_of(settings["model"])
    if arch in ARCH_MODEL_REGISTRY and ARCH_MODEL_REGISTRY[arch].__module__.startswith("fairseq."):
        got = f"{arch}, which is fairseq's own: stock fairseq reads it, with TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
        return f"needs a model of fairseq_tiedemb; got {got}"
    # fairseq's lstm_lm is another model: it has two biases per gate, and no output bias if tied.
    if stock_arch(settings) in (None, "lstm_lm"):
        return f"needs a model that fairseq also has, a Transformer or convolutional one; got {arch}"
    if lacking := _lacking_bias(settings, "fairseq"):
        return lacking
    method = sharing_of(settings)
    changed = {} if method.is_plain else {"sharing_method": method.name}
    for name, value in (changed | constants_of(settings).changed()).items():
        for option in filter(options.get, ("adaptive_input", "adaptive_softmax_cutoff")):
            got = f"{flag_of(option)} {options[option]}, with {flag_of(name)} {value}"
            return f"needs one table as wide as the model; got {got}"
    widths = [options.get(f"decoder_{end}_dim") for end in ("output", "embed")]
    if options.get("tie_adaptive_weights") and widths[0] not in (None, widths[1]):
        return f"needs one width of tied bands; got --decoder-output-dim {widths[0]}, --decoder-embed-dim {widths[1]}"
    task = settings["task"]
    if options.get(MERGED) and is_untied_in_fairseq(settings) and not _has_one_dictionary(task):
        needed = "one dictionary for both languages, since the export unties tables, and fairseq's then have the words"
        got = f"--merge-src-tgt-embed, and not one dictionary in {task.get('data')}"
        return f"needs {needed} of one language each; got {got}"
    size = task.get("output_dictionary_size")
    is_tied = options.get(TYING)
    if is_tied and not stays_tied(settings) and size not in (None, -1):
        needed = "one dictionary for input and output, since folding unties the tables"
        return f"needs {needed}, and fairseq's output then has fewer words; got --output-dictionary-size {size}"
    return None


def _lacking_bias(settings: Settings, library: str) -> str | None:
    method = sharing_of(settings)
    if method.offset is not None:
        return needs_bias("a sharing method that only scales", f"--sharing-method {method.name}", library)
    if settings["model"].get("projection_bias"):
        return needs_bias("a projection without a bias", "--projection-bias", library)
    return None


def _has_one_dictionary(task: Mapping[str, Any]) -> bool:
    """Whether the training's data folder still exists, and has the same dictionary for both languages."""
    folder = Path(str(task.get("data")).split(":")[0])
    paths = [folder / f"dict.{task.get(side)}.txt" for side in ("source_lang", "target_lang")]
    return all(path.is_file() for path in paths) and paths[0].read_bytes() == paths[1].read_bytes()


def _lacking_in_transformers(settings: Settings, engine: str) -> str | None:
    """What engines for the common Transformers do not support."""
    options, arch, task = settings["model"], preset_of(settings["model"]), settings["task"].get("_name")
    kind = _name(settings).removeprefix("tied_")
    if kind not in TASKS:
        return f"needs a Transformer, for translation or as a language model; got {arch}, which is neither"
    if task != TASKS[kind]:
        return f"needs a model of --task {TASKS[kind]}; got {task}, whose sentences may begin and end differently"
    for option, needed in REFUSED.items():
        if options.get(option):
            return f"needs {needed}; got {flag_of(option)} {options[option]}, which {engine} does not support"
    activation = options.get("activation_fn") or "relu"
    if activation not in ACTIVATIONS:
        return f"needs one of {', '.join(ACTIVATIONS)}; got --activation-fn {activation}, which {engine} lacks"
    return None


def _lacking_in_huggingface(settings: Settings) -> str | None:
    if lacking := _lacking_in_transformers(settings, "transformers") or _lacking_bias(settings, "transformers"):
        return lacking
    options = settings["model"]
    translates = _name(settings).removeprefix("tied_") == TRANSLATION
    if not translates and not options.get("decoder_normalize_before"):
        return "needs a pre-norm language model, as XGLM is; got one without --decoder-normalize-before"
    for option in (*OF_EVERY_CLASS, *(OF_FSMT if translates else ())):
        if options.get(option):
            needed = "a post-norm Transformer with fixed positions, as FSMT is" if translates else "XGLM's layers"
            return f"needs {needed}; got {flag_of(option)}"
    widths = [options.get(f"{side}_embed_dim") for side in ("encoder", "decoder")]
    if translates and widths[0] != widths[1]:
        return f"needs one width, as FSMT has; got --encoder-embed-dim {widths[0]} and --decoder-embed-dim {widths[1]}"
    return None


# By target: a function that describes what the target does not support in a model, or returns None.
CHECKS: dict[str, Callable[[Settings], str | None]] = {
    "fairseq": _lacking_in_fairseq,
    "ctranslate2": partial(_lacking_in_transformers, engine="CTranslate2"),
    "huggingface": _lacking_in_huggingface,
}
