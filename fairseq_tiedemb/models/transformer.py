"""fairseq's Transformer for translation with shared embeddings."""

from typing import Any

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from ..checkpoints.meaning import SHARING_IN_FAIRSEQS_MODELS
from ._tied_model import TiedModel
from ._transplant import add_sharing_args, check_translation_options, register_presets, transplant


@register_model("tied_transformer")
class TiedTransformerModel(TiedModel, TransformerModel):
    """fairseq's ``transformer`` with a sharing method, factorised embeddings, and a loss without all logits in memory.

    ``--sharing-method plain`` computes exactly what ``transformer`` does. Every method keeps the factor sqrt(D) of
    input vectors. Presets are fairseq's with the prefix ``tied_``.

    Source: Vaswani et al. 2017; Liu et al. 2020, section 4.
    """

    meaning = SHARING_IN_FAIRSEQS_MODELS

    @classmethod
    def add_args(cls, parser: Any) -> None:
        """Adds fairseq's flags and those of shared embeddings."""
        super().add_args(parser)
        add_sharing_args(parser)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TiedTransformerModel":
        """Builds fairseq's model and replaces its tables; raises ValueError for conflicting options or dictionaries."""
        check_translation_options(args, task)
        model = super().build_model(args, task)
        transplant(model, args, name="tied_transformer")
        return model


register_presets("transformer")
