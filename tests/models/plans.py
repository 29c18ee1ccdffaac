"""Small settings of every family, and the plans that follow from them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_tiedemb.plan import Plan

from . import families
from .common import dictionary

V = 20
WORDS, OTHERS, MORE = dictionary(V), dictionary(V, "wort"), dictionary(V + 2)
PAD = WORDS.pad()
NMT = {f"{side}_{part}": 6 for side in ("encoder", "decoder") for part in ("embed_dim", "hidden_size")}
NMT |= {"decoder_out_embed_dim": 6, "max_source_positions": 9, "max_target_positions": 9, "dropout": 0.0}
LM = {"decoder_embed_dim": 6, "decoder_hidden_size": 6}
CUTOFF = {"adaptive_softmax_cutoff": "5,8", "adaptive_softmax_factor": 2.0}
THEIRS = {"adaptive_softmax_cutoff": "8,16"}


def family_and_settings(preset: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The class of a preset, and small settings of its family."""
    if preset in families.FAMILIES:
        model = ARCH_MODEL_REGISTRY["tied_" + families.FAMILIES[preset][0]]
        return model, families.options_of(preset, **{"sharing_method": "plain", **options})
    model = ARCH_MODEL_REGISTRY[preset]
    cfg = getattr(model, "__dataclass")()
    sizes = NMT if "nmt" in preset or "dl4mt" in preset else LM
    sizes = {"decoder_embed_dim": 6} if preset.startswith("word2vec") else sizes
    for name, value in {**sizes, **options}.items():
        assert hasattr(cfg, name), name
        setattr(cfg, name, value)
    cfg._name = preset
    return model, cfg


def task(source: Any = WORDS, target: Any = WORDS) -> Any:
    return SimpleNamespace(
        source_dictionary=source,
        target_dictionary=target,
        dictionary=target,
        output_dictionary=target,
        cfg=SimpleNamespace(),
        word_counts=np.arange(len(source)),
    )


def plan_of(preset: str, source: Any = WORDS, target: Any = WORDS, **options: Any) -> Plan:
    model, cfg = family_and_settings(preset, options)
    return model.plan_of(cfg, task(source, target))
