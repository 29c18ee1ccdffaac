"""fairseq's Transformer for translation with shared embeddings."""

from typing import Any

from fairseq.models.transformer import TransformerModel

from ..plan import Plan
from ._fairseqs import TRANSLATION, FairseqsModel, FairseqsTranslationConfig, register_tied
from ._search import SearchDecoder, SearchEncoder


@register_tied("transformer")
class TiedTransformerModel(FairseqsModel, TransformerModel):
    """fairseq's ``transformer`` with a sharing method, factorised embeddings, and a loss without all logits in memory.

    ``--sharing-method plain`` computes what ``transformer`` does, in float32 exactly. Every method keeps the
    factor sqrt(D) of input vectors. Presets are fairseq's with the prefix ``tied_``.

    Source: Vaswani et al. 2017; Liu et al. 2020, section 3.1.2.
    """

    family = TRANSLATION
    own_options = FairseqsTranslationConfig

    def transplant(self, plan: Plan, args: Any, task: Any) -> None:
        """Replaces the tables, and the classes of encoder and decoder."""
        super().transplant(plan, args, task)
        self.encoder.__class__, self.decoder.__class__ = SearchEncoder, SearchDecoder
