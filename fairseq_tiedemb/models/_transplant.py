"""Replaces the embeddings of fairseq's models by shared embeddings.

fairseq builds its model with the usual random numbers. Then its tables are replaced by this package's, which take over
the parameters. Everything between input vectors and features remains fairseq's.
"""

import logging
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    register_model_architecture,
)
from fairseq.modules import AdaptiveInput
from torch import nn

from ..embedding import SharedEmbedding
from ..modules.factorized import FactorizedInput
from ..outputs import Bands, OutputLayer, build_output, embed_bands, tie_bands
from ..sharing import sharing_method, sharing_method_names
from ._options import (
    PROJECTION_BIAS_HELP,
    PROJECTION_HELP,
    SHARING_METHOD_HELP,
    build_projection,
    check_joined_dictionary,
    check_projection,
)
from ._sharing import describe

logger = logging.getLogger(__name__)

EMBEDDING_RANK_HELP = (
    "factorise all embeddings (Lan et al. 2020): tables of this width, and projections between this width and the "
    "model's"
)


def add_sharing_args(parser: Any) -> None:
    """Adds the flags of shared embeddings to a model that fairseq configures by argparse."""
    parser.add_argument("--sharing-method", choices=sharing_method_names(), default="plain", help=SHARING_METHOD_HELP)
    parser.add_argument("--embedding-rank", type=int, metavar="R", help=EMBEDDING_RANK_HELP)
    parser.add_argument("--projection", action="store_true", help=PROJECTION_HELP)
    parser.add_argument("--projection-bias", action="store_true", help=PROJECTION_BIAS_HELP)


def register_presets(model: str) -> None:
    """Registers every architecture of fairseq's ``model`` as ``tied_<architecture>`` of ``tied_<model>``."""
    for arch in ARCH_MODEL_INV_REGISTRY[model]:
        if (
            f"tied_{arch}" not in ARCH_MODEL_REGISTRY
        ):  # a model with a dataclass is already registered under its own name
            register_model_architecture(f"tied_{model}", f"tied_{arch}")(ARCH_CONFIG_REGISTRY[arch])


def check_options(args: Any, *, adaptive_input: bool) -> None:
    """Checks the options before fairseq builds the model; ``adaptive_input`` says that the family has adaptive inputs.

    Raises:
        ValueError: for the first flag that cannot work.
    """

    def given(name: str) -> Any:
        return getattr(args, name, None) or None  # unset, 0, False and "" are all off

    method = sharing_method(str(given("sharing_method") or "plain"), flag="--sharing-method")
    check_projection(projects=bool(given("projection")), bias=bool(given("projection_bias")))
    if given("projection") and given("adaptive_softmax_cutoff"):
        raise ValueError(
            f"--projection: needs one table for all words; got --adaptive-softmax-cutoff "
            f"{given('adaptive_softmax_cutoff')}. Use one of them."
        )
    if given("quant_noise_scalar"):
        raise ValueError(
            f"--quant-noise-scalar: needs fairseq's own embeddings; got {given('quant_noise_scalar')}. "
            "Use --quant-noise-pq, or fairseq's model."
        )
    tied = given("tie_adaptive_weights")
    if tied and not adaptive_input:
        raise ValueError(
            "--tie-adaptive-weights: needs a language model with --adaptive-input; got a translation model. "
            "Leave it out."
        )
    if tied and not (given("adaptive_input") and given("adaptive_softmax_cutoff")):
        raise ValueError(
            "--tie-adaptive-weights: needs --adaptive-input and --adaptive-softmax-cutoff; got "
            f"{bool(given('adaptive_input'))} and {given('adaptive_softmax_cutoff')}. Use both, with equal cutoffs."
        )
    for name, other in (
        ("adaptive_input_cutoff", "adaptive_softmax_cutoff"),
        ("adaptive_input_factor", "adaptive_softmax_factor"),
        ("decoder_input_dim", "decoder_output_dim"),
    ):
        if tied and given(name) != given(other):
            flags = [f"--{option.replace('_', '-')}" for option in (name, other)]
            raise ValueError(
                f"--tie-adaptive-weights: needs {flags[0]} equal to {flags[1]}; got {given(name)} and {given(other)}. "
                f"Use {flags[0]} {given(other)}."
            )
    for name in ("adaptive_input", "character_embeddings"):
        if not (adaptive_input and given(name)):
            continue
        flag = "--" + name.replace("_", "-")
        if given("share_decoder_input_output_embed") and not given("adaptive_softmax_cutoff"):
            raise ValueError(
                f"--share-decoder-input-output-embed: needs one table of words as input; got {flag}. "
                "Use --adaptive-input with --adaptive-softmax-cutoff and --tie-adaptive-weights, or leave one out."
            )
    if not method.is_plain:
        _check_tables_are_ours(method.name, given)
    _check_rank(args, given)
    _check_bands(given, adaptive_input=adaptive_input and bool(given("adaptive_input")))


def _check_bands(given: Any, *, adaptive_input: bool) -> None:
    """Checks the cutoffs of adaptive layers and the widths of the input's bands."""
    if adaptive_input and not given("adaptive_input_cutoff"):
        raise ValueError(
            "--adaptive-input: needs --adaptive-input-cutoff; got none. Use the frequency ranks at which bands end, "
            "such as 2000,6000."
        )
    bands = 0
    for name in ("adaptive_softmax_cutoff", "adaptive_input_cutoff"):
        value = given(name)
        if value is None or (name == "adaptive_input_cutoff" and not adaptive_input):
            continue
        try:
            ends = [int(number) for number in str(value).strip("[]() ").split(",")]
        except ValueError:
            ends = []
        bands = len(ends)
        if not ends or any(low >= high for low, high in zip([0, *ends], ends, strict=False)):
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag}: needs rising whole numbers above 0; got {value}. Use 2000,6000, say.")
    if not adaptive_input:
        return
    width, factor = given("decoder_input_dim") or given("decoder_embed_dim"), float(given("adaptive_input_factor") or 0)
    if not factor >= 1 or width // factor**bands < 1:
        raise ValueError(
            f"--adaptive-input-factor: needs 1 or more, and a last band, of {width} / factor^{bands}, at least 1 wide; "
            f"got {factor}. Use 4, or fewer bands."
        )


def _check_tables_are_ours(method: str, given: Any) -> None:
    if given("adaptive_softmax_cutoff") and not given("tie_adaptive_weights"):
        raise ValueError(
            f"--sharing-method {method}: needs bands that input and output share; got "
            f"--adaptive-softmax-cutoff {given('adaptive_softmax_cutoff')} without --tie-adaptive-weights. "
            "Use --adaptive-input --tie-adaptive-weights, which language models have, or --sharing-method plain."
        )
    if given("character_embeddings"):
        raise ValueError(
            f"--sharing-method {method}: needs a table of words as input; got --character-embeddings. "
            "Use --sharing-method plain."
        )


def _check_rank(args: Any, given: Any) -> None:
    rank = getattr(args, "embedding_rank", None)
    if rank is None:
        return
    if rank < 1:
        raise ValueError(f"--embedding-rank: needs a positive whole number; got {rank}. Use 128, say.")
    for name in (
        "adaptive_input",
        "adaptive_softmax_cutoff",
        "character_embeddings",
        "encoder_embed_path",
        "decoder_embed_path",
    ):
        if given(name):
            raise ValueError(
                f"--embedding-rank: needs new tables of one width; got --{name.replace('_', '-')} {given(name)}. "
                "Use one of them."
            )


def check_merged_dictionary(source: Dictionary, target: Dictionary) -> None:
    """Raises ValueError if the merged dictionary changes the index of a target token, since the data hold indices."""
    merged = source.symbols + [word for word in target.symbols if word not in source.indices]
    for index, (word, other) in enumerate(zip(target.symbols, merged, strict=False)):
        if word != other:
            raise ValueError(
                "--merge-src-tgt-embed: needs target words that have the same number in the merged dictionary; got "
                f"{word!r} at {index}, where that has {other!r}. Use fairseq-preprocess --joined-dictionary and "
                "--share-all-embeddings."
            )


def check_translation_options(args: Any, task: Any) -> None:
    """Runs ``check_options`` for an encoder-decoder model, and checks its dictionaries.

    Raises:
        ValueError: for the first flag that cannot work.
    """
    check_options(args, adaptive_input=False)
    if getattr(args, "share_all_embeddings", False):
        check_joined_dictionary(task.source_dictionary, task.target_dictionary, asked_by="--share-all-embeddings")
    elif getattr(args, "merge_src_tgt_embed", False):
        check_merged_dictionary(task.source_dictionary, task.target_dictionary)


def transplant(model: Any, args: Any, *, name: str) -> None:
    """Replaces the tables of a fairseq model in place; shared tables stay shared.

    ``plain`` without a rank keeps parameters, computations and checkpoints unchanged. A sharing method applies to all
    tables, also unshared ones. Every band of an adaptive layer is one table; the logits of clusters stay linear layers.

    Args:
        model: a model with a ``decoder`` and optionally an ``encoder``.
        args: the model's options.
        name: name of the model, for the log.

    Raises:
        ValueError: if tied tables differ in width.

    Source: Liu et al. 2020; Baevski & Auli 2019 (adaptive input, tied with adaptive softmax: section 3); Lan et al.
    2020 (factorised).
    """
    method = str(getattr(args, "sharing_method", None) or "plain")
    rank = getattr(args, "embedding_rank", None)
    encoder, decoder = getattr(model, "encoder", None), model.decoder
    old, bands = decoder.embed_tokens, decoder.adaptive_softmax
    tied = bands is None and decoder.output_projection.weight is getattr(old, "weight", None)
    new = _input(old, method, rank, scores=tied)
    if encoder is not None:
        same = encoder.embed_tokens is old
        encoder.embed_tokens = new if same else _input(encoder.embed_tokens, method, rank, scores=False)
    decoder.embed_tokens = new
    if bands is None:
        decoder.output_projection = _output(decoder, args, new if tied else None, method, rank)
    else:
        if isinstance(old, AdaptiveInput):
            tie_bands(bands, old)
        decoder.output_projection = OutputLayer(Bands(bands), borrowed=True)
    logger.info(describe(model, name))


def _input(old: Any, method: str, rank: int | None, *, scores: bool) -> Any:
    """The replacement of fairseq's input table, shared with the output if it ``scores``."""
    if isinstance(old, AdaptiveInput):
        embed_bands(old, method)
    if not isinstance(old, nn.Embedding):  # adaptive or character inputs
        return old
    weight: Any = old.weight
    size, width = weight.shape
    if rank is None:
        return SharedEmbedding(size, width, old.padding_idx, method=method, weight=weight, scores=scores)
    table = SharedEmbedding(size, rank, old.padding_idx, method=method, std=None, scores=scores)
    return FactorizedInput(table, width)


def _output(decoder: Any, args: Any, source: Any, method: str, rank: int | None) -> OutputLayer:
    """The replacement of fairseq's output layer; ``source`` is the tied input table's replacement, or None."""
    weight = decoder.output_projection.weight
    size, width = weight.shape
    features_dim = args.decoder_embed_dim if decoder.project_out_dim is None else decoder.project_out_dim.out_features
    if getattr(args, "projection", False):
        inner = width if rank is None else features_dim
        decoder.projection = build_projection(features_dim, inner, bias=bool(getattr(args, "projection_bias", False)))
    elif source is not None and rank is None and features_dim != width:
        raise ValueError(
            "--share-decoder-input-output-embed: needs input vectors as wide as features; got "
            f"{width} and {features_dim}. Use --decoder-output-dim {width}, or --projection."
        )
    table = getattr(source, "table", source)
    if table is None:
        options = {"std": None} if rank else {"weight": weight}
        table = SharedEmbedding(size, rank or width, decoder.dictionary.pad(), method=method, embeds=False, **options)
    return build_output(
        table,
        borrowed=source is not None,
        features_dim=features_dim,
        projection=getattr(decoder, "projection", None),
        factorized=rank is not None,
    )
