"""fairseq's Transformer for translation with shared embeddings."""

from typing import Any

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from ..checkpoints.meaning import SHARING_IN_FAIRSEQS_MODELS
from ._fairseqs import TRANSLATION, FairseqsTranslationConfig, register_presets, transplant
from ._tied_model import TiedModel


@register_model("tied_transformer")
class TiedTransformerModel(TiedModel, TransformerModel):
    """fairseq's ``transformer`` with a sharing method, factorised embeddings, and a loss without all logits in memory.

    ``--sharing-method plain`` computes exactly what ``transformer`` does. Every method keeps the factor sqrt(D) of
    input vectors. Presets are fairseq's with the prefix ``tied_``.

    Source: Vaswani et al. 2017; Liu et al. 2020, section 4.
    """

    family = TRANSLATION
    own_options = FairseqsTranslationConfig
    meaning = SHARING_IN_FAIRSEQS_MODELS

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TiedTransformerModel":
        """Builds fairseq's model and replaces its tables; raises ValueError as ``plan_of``."""
        plan = cls.plan_of(args, task)
        model = super().build_model(args, task)
        transplant(model, plan, args, task, name="tied_transformer")
        return model


register_presets("transformer")
