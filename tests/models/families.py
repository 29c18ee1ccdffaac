"""The families of fairseq's models that have a form with shared embeddings, in sizes that build in milliseconds."""

import argparse
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_tiedemb.plugin  # noqa: F401 (registers the models)

from .. import reference
from .common import LENGTHS, PAD, PREVIOUS, SOURCE, dictionary

WORDS = dictionary(24)

SIZES: dict[str, Any] = {"tokens_per_sample": 30, "add_bos_token": False, "tpu": False}
SIZES |= dict.fromkeys(("max_source_positions", "max_target_positions"), 30)
SIZES |= {f"{side}_{width}": 16 for side in ("encoder", "decoder") for width in ("embed_dim", "ffn_embed_dim")}
SIZES |= {f"{side}_{number}": 2 for side in ("encoder", "decoder") for number in ("layers", "attention_heads")}
CONVOLUTION: dict[str, Any] = {
    "encoder_kernel_size_list": [3, 3],
    "decoder_kernel_size_list": [3, 3],
    "encoder_conv_type": "dynamic",
    "decoder_conv_type": "dynamic",
    "weight_softmax": True,
    "attention_dropout": 0.1,
    "dropout": 0.1,
    "relu_dropout": 0.0,
    "no_token_positional_embeddings": False,
}
LIGHTWEIGHT = {"encoder_conv_type": "lightweight", "decoder_conv_type": "lightweight"}
# family -> fairseq's name of the model, options
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("transformer", {}),
    "lightconv": ("lightconv", {**CONVOLUTION, **LIGHTWEIGHT}),
    "dynamicconv": ("lightconv", CONVOLUTION),
    "transformer_lm": ("transformer_lm", {}),
    "lightconv_lm": ("lightconv_lm", {**CONVOLUTION, "share_decoder_input_output_embed": False}),
}
TRANSLATION = ("transformer", "lightconv", "dynamicconv")
DECODER = {"share_decoder_input_output_embed": True}
ALL = {"share_all_embeddings": True}
CHARACTERS = {"character_embeddings": True, "character_embedding_dim": 4, "character_filters": "[(1, 8)]"}
CHARACTERS |= {"char_embedder_highway_layers": 1}
BANDS = {
    "adaptive_input": True,
    "adaptive_input_cutoff": "8,16",
    "adaptive_softmax_cutoff": "8,16",
    "tie_adaptive_weights": True,
    "adaptive_input_factor": 2.0,
    "adaptive_softmax_factor": 2.0,
}
# every family in every way it can share: id -> family, options
SHARINGS = {f"{family}-decoder": (family, DECODER) for family in FAMILIES}
SHARINGS |= {f"{family}-all": (family, ALL) for family in TRANSLATION}
SHARINGS |= {f"{family}-untied": (family, {}) for family in FAMILIES}

# Those that are functions of norms; tests/test_sharing.py has the equations of the others.
every_method = pytest.mark.parametrize("method", reference.SCORES)
every_family = pytest.mark.parametrize("family", FAMILIES)
every_sharing = pytest.mark.parametrize(("family", "options"), SHARINGS.values(), ids=SHARINGS)


def options_of(family: str, **options: Any) -> Any:
    """What fairseq's commands hand to `build_model`: fairseq's defaults, tiny sizes, and these options."""
    model, sizes = FAMILIES[family]
    args = argparse.Namespace(**{**SIZES, **sizes, **options})
    ARCH_CONFIG_REGISTRY["transformer_lm_big" if model == "transformer_lm" else model](args)
    if model == "transformer_lm":
        name = "tied_transformer_lm" if hasattr(args, "sharing_method") else "transformer_lm"
        args = getattr(ARCH_MODEL_REGISTRY[name], "__dataclass").from_namespace(args)
    return args


def task_of(source: Dictionary, target: Dictionary) -> Any:
    return SimpleNamespace(
        source_dictionary=source, target_dictionary=target, dictionary=target, output_dictionary=target
    )


def build(
    family: str, *, ours: bool = True, source: Dictionary = WORDS, target: Dictionary = WORDS, seed: int = 3, **options
) -> Any:
    """A tiny model of a family, ours or fairseq's own, with random numbers of its own."""
    if ours:
        options = {"sharing_method": "plain", **options}
    model = ARCH_MODEL_REGISTRY[("tied_" if ours else "") + FAMILIES[family][0]]
    torch.manual_seed(seed)
    return model.build_model(options_of(family, **options), task_of(source, target))


def inputs(family: str) -> dict[str, torch.Tensor]:
    """The `net_input` of a batch."""
    if family in TRANSLATION:
        return {"src_tokens": SOURCE, "src_lengths": LENGTHS, "prev_output_tokens": PREVIOUS}
    return {"src_tokens": PREVIOUS, "src_lengths": PREVIOUS.ne(PAD).sum(1)}


def scores(model: Any, family: str) -> torch.Tensor:
    return model(**inputs(family))[0]
