"""Puts shared embeddings into the models that fairseq builds.

fairseq builds its model as ever, with the same random numbers; then its tables are replaced by ours, which take the
parameters over. Everything between input vectors and features stays fairseq's.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    register_model_architecture,
)
from fairseq.models.fairseq_model import BaseFairseqModel
from fairseq.modules import AdaptiveInput
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..modules.adaptive import embed_bands, tie_bands
from ..modules.factorized import FactorizedInput, FactorizedOutput
from ..modules.output_layer import OutputTable, TiedOutput
from ..output_loss import OutputLoss
from ..sharing import SHARING_METHODS, sharing_method
from ._meaning import TRANSPLANTED
from ._options import SHARING_METHOD_HELP, check_joined_dictionary

logger = logging.getLogger(__name__)

EMBEDDING_RANK_HELP = (
    "factorise every embedding (Lan et al. 2020): a table with rows of this width, and a projection to or from the "
    "width of the model"
)


def add_sharing_args(parser: Any) -> None:
    """Adds the flags of shared embeddings to those of a model that fairseq configures by argparse."""
    parser.add_argument("--sharing-method", choices=list(SHARING_METHODS), default="plain", help=SHARING_METHOD_HELP)
    parser.add_argument("--embedding-rank", type=int, metavar="R", help=EMBEDDING_RANK_HELP)


def register_presets(model: str) -> None:
    """Registers every architecture of fairseq's ``model`` for ours, ``tied_<model>``, as ``tied_<architecture>``."""
    for arch in ARCH_MODEL_INV_REGISTRY[model]:
        if f"tied_{arch}" not in ARCH_MODEL_REGISTRY:  # a dataclass has registered the model's own name
            register_model_architecture(f"tied_{model}", f"tied_{arch}")(ARCH_CONFIG_REGISTRY[arch])


class TiedModel(BaseFairseqModel):
    """What our forms of fairseq's models have in common; stands before fairseq's class among the bases."""

    meaning = TRANSPLANTED
    computes_loss: ClassVar[bool] = True
    decoder: Any

    def forward(
        self,
        *args: Any,
        target: Tensor | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        **kwargs: Any,
    ) -> OutputLoss | Any:
        """What fairseq's class computes, or the loss of ``target`` without ever holding the scores.

        Args:
            args: of fairseq's class.
            target: right words (B, T); then the loss is returned, computed here so that wrappers of the model (data
                parallel) see all of it.
            label_smoothing: of the loss.
            z_loss: of the loss.
            kwargs: of fairseq's class.

        Raises:
            ValueError: if a loss is wanted of an adaptive softmax.
        """
        if target is None:
            return super().forward(*args, **kwargs)
        if self.decoder.adaptive_softmax is not None:
            raise ValueError(
                "--criterion tied_cross_entropy: needs one table for all words; got --adaptive-softmax-cutoff. "
                "Use --criterion adaptive_loss --ddp-backend legacy_ddp."
            )
        with _features_from(self.decoder) as output:
            features_BTD, _ = super().forward(*args, **kwargs)
        is_word = target.ne(self.decoder.dictionary.pad())
        return output.loss(features_BTD[is_word], target[is_word], label_smoothing=label_smoothing, z_loss=z_loss)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """fairseq's upgrade of old checkpoints; refuses those whose tables are two where the model has one.

        Raises:
            ValueError: naming the flag.
        """
        super().upgrade_state_dict_named(state_dict, name)
        encoder, decoder = getattr(self, "encoder", None), self.decoder
        if encoder is None or encoder.embed_tokens is not decoder.embed_tokens:
            return
        source, target = (state_dict.get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder"))
        if source is not None and target is not None and not torch.equal(source, target):
            raise ValueError(
                "--share-all-embeddings: needs a checkpoint with one table for encoder and decoder; got two that "
                "differ. Use --share-decoder-input-output-embed, if its decoder has one."
            )


@contextmanager
def _features_from(decoder: Any) -> Iterator[Any]:
    """Makes a decoder return features, for LightConv's has no flag for it; yields its output layer."""
    output = decoder.output_projection
    decoder.output_projection = nn.Identity()
    try:
        yield output
    finally:
        decoder.output_projection = output


def check_options(args: Any, *, adaptive_input: bool) -> None:
    """Checks options before fairseq builds a model of them.

    Args:
        args: options of the model, a Namespace, a dataclass or a DictConfig.
        adaptive_input: whether the family has fairseq's adaptive inputs.

    Raises:
        ValueError: naming the first flag that cannot work, and what to use.
    """

    def given(name: str) -> Any:
        return getattr(args, name, None) or None  # unset, 0, False and "" are all off

    method = sharing_method(str(given("sharing_method") or "plain"))
    if given("quant_noise_scalar"):
        raise ValueError(
            f"--quant-noise-scalar: needs fairseq's own embeddings; got {given('quant_noise_scalar')}. "
            "Use --quant-noise-pq, or fairseq's model."
        )
    tied = given("tie_adaptive_weights")
    if tied and not adaptive_input:
        raise ValueError(
            "--tie-adaptive-weights: needs a language model with --adaptive-input; got a translation model"
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
            flags = [f"--{each.replace('_', '-')}" for each in (name, other)]
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
    if method.uses_norms:
        if given("adaptive_softmax_cutoff") and not tied:
            raise ValueError(
                f"--sharing-method {method.name}: needs bands that input and output share; got "
                f"--adaptive-softmax-cutoff {given('adaptive_softmax_cutoff')} without --tie-adaptive-weights. "
                "Use --adaptive-input --tie-adaptive-weights, which language models have, or --sharing-method plain."
            )
        if given("character_embeddings"):
            raise ValueError(
                f"--sharing-method {method.name}: needs a table of words as input; got --character-embeddings. "
                "Use --sharing-method plain."
            )
    _check_rank(args, given)


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
                f"--embedding-rank: needs tables of its own making; got --{name.replace('_', '-')} {given(name)}. "
                "Use one of them."
            )


def check_merged_dictionary(source: Dictionary, target: Dictionary) -> None:
    """Checks that a merged dictionary keeps the numbers of the target's words, which are those of the data.

    Raises:
        ValueError: naming the first word that would get another's row.
    """
    merged = source.symbols + [word for word in target.symbols if word not in source.indices]
    for index, (word, other) in enumerate(zip(target.symbols, merged, strict=False)):
        if word != other:
            raise ValueError(
                "--merge-src-tgt-embed: needs target words that have the same number in the merged dictionary; got "
                f"{word!r} at {index}, where that has {other!r}. Use fairseq-preprocess --joined-dictionary and "
                "--share-all-embeddings."
            )


def check_translation_options(args: Any, task: Any) -> None:
    """``check_options`` for encoder-decoder models, and their dictionaries.

    Raises:
        ValueError: naming the first flag that cannot work, and what to use.
    """
    check_options(args, adaptive_input=False)
    if getattr(args, "share_all_embeddings", False):
        check_joined_dictionary(task.source_dictionary, task.target_dictionary, asked_by="--share-all-embeddings")
    elif getattr(args, "merge_src_tgt_embed", False):
        check_merged_dictionary(task.source_dictionary, task.target_dictionary)


def transplant(model: Any, args: Any, *, name: str) -> None:
    """Replaces the tables of a model that fairseq has built, in place; tables that were one stay one.

    With ``plain`` and no rank nothing changes: the same parameters, computations and checkpoints. A sharing method
    applies to every table, shared or not. Of adaptive inputs and outputs, every band is one table; the scores of
    clusters, which are no words, stay as they are.

    Args:
        model: with a ``decoder``, and an ``encoder`` or not.
        args: its options; ``sharing_method`` and ``embedding_rank`` are read.
        name: of the model, for the log.

    Raises:
        ValueError: if tied tables differ in width.

    Source: Liu et al. 2020; Baevski & Auli 2019 (adaptive input, tied with adaptive softmax: section 3); Lan et al.
    2020 (factorised).
    """
    method = str(getattr(args, "sharing_method", None) or "plain")
    rank = getattr(args, "embedding_rank", None)
    encoder, decoder = getattr(model, "encoder", None), model.decoder
    old = decoder.embed_tokens
    new = _input(old, method, rank)
    if encoder is not None:
        encoder.embed_tokens = new if encoder.embed_tokens is old else _input(encoder.embed_tokens, method, rank)
    decoder.embed_tokens = new
    tied = False
    if decoder.adaptive_softmax is None:
        tied = decoder.output_projection.weight is getattr(old, "weight", None)
        width = args.decoder_embed_dim if decoder.project_out_dim is None else decoder.project_out_dim.out_features
        decoder.output_projection = _output(decoder, new, method, rank, features_dim=width, tied=tied)
    elif isinstance(old, AdaptiveInput):
        tied = tie_bands(decoder.adaptive_softmax, old)
    if encoder is not None and encoder.embed_tokens is new:
        shares = "encoder input = decoder input" + " = decoder output (three-way weight tying)" * tied
    else:
        shares = "decoder input = decoder output (weight tying)" if tied else "nothing"
    size = sum(parameter.numel() for parameter in model.parameters())
    logger.info(f"{name}: shares {shares} by method {method}; {size:,} parameters")


def _input(old: Any, method: str, rank: int | None) -> Any:
    """Our form of fairseq's input table."""
    if isinstance(old, AdaptiveInput):
        embed_bands(old, method)
    if not isinstance(old, nn.Embedding):  # bands, or made from characters
        return old
    weight: Any = old.weight
    size, width = weight.shape
    if rank is None:
        return SharedEmbedding(size, width, old.padding_idx, method=method, weight=weight)
    return FactorizedInput(SharedEmbedding(size, rank, old.padding_idx, method=method, std=rank**-0.5), width)


def _output(decoder: Any, source: Any, method: str, rank: int | None, *, features_dim: int, tied: bool) -> nn.Module:
    """Our form of fairseq's output layer."""
    weight, padding_idx = decoder.output_projection.weight, decoder.dictionary.pad()
    size, width = weight.shape
    if rank is not None:
        if tied:
            return FactorizedOutput(TiedOutput(source.table), features_dim)
        table = OutputTable(size, rank, padding_idx, method=method, std=rank**-0.5)
        return FactorizedOutput(table, features_dim)
    if not tied:
        return OutputTable(size, width, padding_idx, method=method, weight=weight)
    if features_dim != source.embedding_dim:
        raise ValueError(
            "--share-decoder-input-output-embed: needs input vectors as wide as features; got "
            f"{source.embedding_dim} and {features_dim}. Use --decoder-output-dim {source.embedding_dim}."
        )
    return TiedOutput(source)
