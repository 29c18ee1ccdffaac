"""fairseq's Transformer for translation with shared embeddings."""

from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel

from ._fairseqs import TRANSLATION, FairseqsModel, FairseqsTranslationConfig, register_presets


@register_model("tied_transformer")
class TiedTransformerModel(FairseqsModel, TransformerModel):
    """fairseq's ``transformer`` with a sharing method, factorised embeddings, and a loss without all logits in memory.

    ``--sharing-method plain`` computes exactly what ``transformer`` does. Every method keeps the factor sqrt(D) of
    input vectors. Presets are fairseq's with the prefix ``tied_``.

    Source: Vaswani et al. 2017; Liu et al. 2020, section 4.
    """

    name = "tied_transformer"
    family = TRANSLATION
    own_options = FairseqsTranslationConfig


register_presets("transformer")
