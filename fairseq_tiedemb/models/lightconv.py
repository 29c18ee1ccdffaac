"""fairseq's LightConv and DynamicConv with shared embeddings, for translation and language modelling."""

from typing import Any

from fairseq.models.lightconv import LightConvDecoder, LightConvModel
from fairseq.models.lightconv_lm import LightConvLanguageModel
from torch import Tensor

from ..outputs import OutputLayer
from ..plan import Plan
from ._fairseqs import (
    LANGUAGE_MODEL,
    TRANSLATION,
    FairseqsLMConfig,
    FairseqsModel,
    FairseqsTranslationConfig,
    register_tied,
)


class FeaturesAsTheyAre(OutputLayer):
    """Output layer that returns features when called, so that logits come from ``scores`` only."""

    def forward(self, features: Tensor) -> Tensor:
        return features


class TiedLightConvDecoder(LightConvDecoder):
    """fairseq's decoder with a ``features_only`` option, as in its Transformer."""

    def forward(self, *args: Any, features_only: bool = False, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Logits (B, T, V), or features (B, T, D); see fairseq's class for the arguments."""
        features, extra = super().forward(*args, **kwargs)
        return (features if features_only else self.output_layer(features)), extra

    def extract_features(self, *args: Any, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        return self.forward(*args, features_only=True, **kwargs)

    def output_layer(self, features: Tensor, **_: Any) -> Tensor:
        """Logits of the whole vocabulary (*, V); for an adaptive softmax the features."""
        return features if self.adaptive_softmax is not None else self.output_projection.scores(features)


class ConvolutionalModel(FairseqsModel):
    """Mixin for our forms of fairseq's convolutional models, whose decoders have no ``features_only``."""

    def transplant(self, plan: Plan, args: Any, task: Any) -> None:
        """Replaces the tables, and the class of the decoder."""
        super().transplant(plan, args, task)
        self.decoder.__class__ = TiedLightConvDecoder
        self.decoder.output_projection.__class__ = FeaturesAsTheyAre


@register_tied("lightconv")
class TiedLightConvModel(ConvolutionalModel, LightConvModel):
    """fairseq's ``lightconv`` with a sharing method; DynamicConv unless ``--encoder-conv-type lightweight`` is given.

    Otherwise like ``tied_transformer``. The presets' encoders have 7 blocks.

    Source: Wu et al. 2019; Liu et al. 2020, section 3.1.2.
    """

    family = TRANSLATION
    own_options = FairseqsTranslationConfig

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        width, other = args.encoder_embed_dim, args.decoder_embed_dim
        if width != other:
            needs = f"{width}, as --encoder-embed-dim, since attention compares both"
            raise ValueError(f"--decoder-embed-dim: needs {needs}; got {other}. Use {width}.")
        # fairseq's decoder reads adaptive softmax options that only its language model defines.
        unused = {"adaptive_softmax_factor": 4.0, "tie_adaptive_weights": False, "tie_adaptive_proj": False}
        for name, value in unused.items():
            setattr(args, name, getattr(args, name, value))
        return super().build_model(args, task)


@register_tied("lightconv_lm")
class TiedLightConvLanguageModel(ConvolutionalModel, LightConvLanguageModel):
    """fairseq's ``lightconv_lm`` with a sharing method, also for adaptive input; like ``tied_transformer_lm``."""

    family = LANGUAGE_MODEL
    own_options = FairseqsLMConfig
