"""Our forms of fairseq's families: fairseq builds the model, and this package's tables take over its parameters.

fairseq builds its model with the usual random numbers. Everything between input vectors and features remains fairseq's.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    register_model_architecture,
)

from ..outputs import ADAPTIVE, SOFTMAX
from ..plan import MERGED, Family, Plan, Settings, Widths
from ._counts import start_biases, training_counts
from ._options import TRANSLATION_HEADS, FairseqsFamilyConfig, OutputLayerConfig, TranslationOutputConfig
from ._tables import build_tables, no_counts


@dataclass
class FairseqsLMConfig(FairseqsFamilyConfig, OutputLayerConfig):
    """What our forms of fairseq's language models have beside fairseq's own options."""


@dataclass
class FairseqsTranslationConfig(FairseqsFamilyConfig, TranslationOutputConfig):
    """What our forms of fairseq's translation models have beside fairseq's own options."""


def _of_decoder(settings: Settings, input_dim: int) -> Widths:
    """Widths of fairseq's decoders, which project features to ``--decoder-output-dim`` unless bands are tied."""
    features = settings("decoder_embed_dim")
    if not settings("tie_adaptive_weights"):
        features = int(settings("decoder_output_dim") or features)
    new = settings.shares is None or settings("embedding_rank")
    return Widths(input_dim, features, projected=features if new else input_dim)


def _of_translation(settings: Settings) -> Widths:
    encoder = settings("encoder_embed_dim")
    widths = _of_decoder(settings, encoder if settings.shares == MERGED else settings("decoder_embed_dim"))
    return widths._replace(encoder=encoder)


def _of_language_model(settings: Settings) -> Widths:
    return _of_decoder(settings, int(settings("decoder_input_dim") or settings("decoder_embed_dim")))


TRANSLATION = Family(_of_translation, translates=True, bias=False, fairseqs=True, heads=(*TRANSLATION_HEADS, ADAPTIVE))
LANGUAGE_MODEL = Family(_of_language_model, bias=False, fairseqs=True)


def register_presets(model: str) -> None:
    """Registers every architecture of fairseq's ``model`` as ``tied_<architecture>`` of ``tied_<model>``."""
    for arch in ARCH_MODEL_INV_REGISTRY[model]:
        if (
            f"tied_{arch}" not in ARCH_MODEL_REGISTRY
        ):  # a model with a dataclass is already registered under its own name
            register_model_architecture(f"tied_{model}", f"tied_{arch}")(ARCH_CONFIG_REGISTRY[arch])


def transplant(model: Any, plan: Plan, args: Any, task: Any, *, name: str) -> None:
    """Replaces the tables of a fairseq model in place.

    ``plain`` without a rank keeps parameters, computations and checkpoints unchanged. A sharing method applies to all
    tables, also unshared ones. Every band of an adaptive layer is one table; the logits of clusters stay linear layers.

    Args:
        model: a model with a ``decoder`` and optionally an ``encoder``.
        plan: who shares what.
        args: the model's options.
        task: the task, whose data give the token counts.
        name: name of the model, for the log.
    """
    decoder, encoder = model.decoder, getattr(model, "encoder", None)
    theirs = {"input": decoder.embed_tokens, "decoder input": decoder.embed_tokens}
    if encoder is not None:
        theirs["encoder input"] = encoder.embed_tokens
    output = decoder.output_projection if decoder.adaptive_softmax is None else decoder.adaptive_softmax
    theirs |= {"output": output, "decoder output": output}
    counts = no_counts if encoder is not None else partial(training_counts, task)
    tables = build_tables(plan, decoder.dictionary, counts, theirs=theirs)
    if encoder is not None:
        encoder.embed_tokens = tables.inputs["encoder input"]
    decoder.embed_tokens = tables.inputs.get("decoder input") or tables.inputs.get("input") or decoder.embed_tokens
    if plan.projection is not None:
        decoder.projection = tables.output.projection
    decoder.output_projection = tables.output
    if encoder is None and plan.head not in (SOFTMAX, ADAPTIVE):
        start_biases(tables.output, getattr(args, "output_bias_init", None) or "unigram", task)
    model.start(plan, name)
