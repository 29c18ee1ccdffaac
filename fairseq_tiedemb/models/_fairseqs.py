"""Our forms of fairseq's families: fairseq builds the model, and this package's tables take over its parameters.

fairseq builds its model with the usual random numbers. Everything between input vectors and features remains fairseq's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

from fairseq import models

from ..checkpoints.meaning import SHARING_IN_FAIRSEQS_MODELS, Choice
from ..outputs import ADAPTIVE
from ..plan import MERGED, Family, Plan, Settings, Widths
from ._counts import start_biases, training_counts
from ._options import TRANSLATION_HEADS, FairseqsFamilyConfig, OutputLayerConfig, TranslationOutputConfig
from ._parts import OURS
from ._pretrained import load_and_freeze
from ._tables import build_tables
from ._tied_model import TiedModel


@dataclass
class FairseqsLMConfig(FairseqsFamilyConfig, OutputLayerConfig):
    """What our forms of fairseq's language models have beside fairseq's own options."""


@dataclass
class FairseqsTranslationConfig(FairseqsFamilyConfig, TranslationOutputConfig):
    """What our forms of fairseq's translation models have beside fairseq's own options."""


def _widths(settings: Settings) -> Widths:
    """Widths of fairseq's models, which project features to ``--decoder-output-dim`` unless bands are tied."""
    width, encoder = settings("decoder_embed_dim"), settings("encoder_embed_dim") or 0
    inputs = encoder if settings.shares == MERGED else width
    if not settings.family.translates:
        inputs = int(settings("decoder_input_dim") or width)
    features = width if settings("tie_adaptive_weights") else int(settings("decoder_output_dim") or width)
    new = settings.shares is None or settings("embedding_rank")
    return Widths(inputs, features, projected=features if new else inputs, encoder=encoder)


TRANSLATION = Family(_widths, translates=True, bias=False, fairseqs=True, heads=(*TRANSLATION_HEADS, ADAPTIVE))
LANGUAGE_MODEL = Family(_widths, bias=False, fairseqs=True)


def register_tied(model: str, **options: Any) -> Callable[[Any], Any]:
    """Registers a class as ``tied_<model>``, and fairseq's architectures of ``model`` as ``tied_<architecture>``."""

    def register(cls: Any) -> Any:
        cls.name = f"tied_{model}"
        registered = models.register_model(cls.name, **options)(cls)
        for arch in models.ARCH_MODEL_INV_REGISTRY[model]:
            if f"tied_{arch}" not in models.ARCH_MODEL_REGISTRY:  # a model with a dataclass already has its own name
                models.register_model_architecture(cls.name, f"tied_{arch}")(models.ARCH_CONFIG_REGISTRY[arch])
        return registered

    return register


class FairseqsModel(TiedModel):
    """Mixin for our form of a model that fairseq builds; precedes fairseq's class among the bases.

    ``plain`` without a rank keeps parameters, computations and checkpoints unchanged. A sharing method applies to all
    tables, also unshared ones. Every band of an adaptive layer is one table; the logits of clusters stay linear layers.
    """

    name: ClassVar[str]
    meaning: ClassVar[tuple[Choice, ...]] = SHARING_IN_FAIRSEQS_MODELS

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        """Builds fairseq's model and replaces its tables; raises ValueError as ``plan_of`` and ``load_and_freeze``."""
        plan = cls.plan_of(args, task)
        vectors = {side: path for side in ("encoder", "decoder") if (path := getattr(args, f"{side}_embed_path", None))}
        for side in vectors:  # fairseq reads these files by other rules, and not for --merge-src-tgt-embed
            setattr(args, f"{side}_embed_path", None)
        model = super().build_model(args, task)
        model.__class__ = cls  # fairseq's convolutional models are always of its own class
        model.transplant(plan, args, task)
        for module in model.modules():
            module.__class__ = OURS.get(type(module), type(module))
        for side, path in vectors.items():
            setattr(args, f"{side}_embed_path", path)
            table = getattr(model, side).embed_tokens
            words = (model.encoder if table is model.encoder.embed_tokens else model.decoder).dictionary
            load_and_freeze(table, args, side, words)
        model.start(plan, cls.name)
        return model

    def transplant(self, plan: Plan, args: Any, task: Any) -> None:
        """Replaces fairseq's tables by those of the plan, from the model's options and the task's counts of tokens."""
        decoder, encoder = self.decoder, getattr(self, "encoder", None)
        words, counts = decoder.dictionary, cache(partial(training_counts, task))
        output = decoder.output_projection if decoder.adaptive_softmax is None else decoder.adaptive_softmax
        theirs = dict.fromkeys(("input", "decoder input"), decoder.embed_tokens)
        theirs |= dict.fromkeys(("output", "decoder output"), output)
        theirs["encoder input"] = getattr(encoder, "embed_tokens", None)
        tables = build_tables(plan, words, counts, theirs=theirs)
        if encoder is not None:
            encoder.embed_tokens = tables.inputs["encoder input"]
        decoder.embed_tokens = tables.inputs.get("decoder input") or tables.inputs.get("input") or decoder.embed_tokens
        if plan.projection is not None:
            decoder.projection = tables.output.projection
        decoder.output_projection = tables.output
        if encoder is None:
            start_biases(tables.output, plan.head, getattr(args, "output_bias_init", None), len(words), counts)
