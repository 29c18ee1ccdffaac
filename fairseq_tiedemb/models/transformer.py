"""fairseq's Transformer for translation with shared embeddings."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from fairseq.models import register_model
from fairseq.models.transformer import TransformerModel
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..checkpoints.meaning import SHARING_IN_FAIRSEQS_MODELS
from ._fairseqs import TRANSLATION, register_presets, transplant
from ._options import FairseqsFamilyConfig
from ._tied_model import TiedModel

# Source length up to which plain products make attention in bfloat16 faster than torch's flash kernel on a CPU: the
# step of an iwslt-sized model 1.11 times as fast at 25 words, equal at 64.
SHORT = 48


@register_model("tied_transformer")
class TiedTransformerModel(TiedModel, TransformerModel):
    """fairseq's ``transformer`` with a sharing method, factorised embeddings, and a loss without all logits in memory.

    ``--sharing-method plain`` computes exactly what ``transformer`` does, but for the rounding in bfloat16. Every
    method keeps the factor sqrt(D) of input vectors. Presets are fairseq's with the prefix ``tied_``.

    Source: Vaswani et al. 2017; Liu et al. 2020, section 4.
    """

    family = TRANSLATION
    own_options = FairseqsFamilyConfig
    meaning = SHARING_IN_FAIRSEQS_MODELS

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TiedTransformerModel":
        """Builds fairseq's model and replaces its tables; raises ValueError as ``plan_of``."""
        plan = cls.plan_of(args, task)
        model = super().build_model(args, task)
        transplant(model, plan, args, task, name="tied_transformer")
        return model

    def forward(self, src_tokens: Tensor, *args: Any, **net_input: Any) -> Any:
        """See ``TiedModel.forward``."""
        with self._attention_kernel(src_tokens):
            return super().forward(src_tokens, *args, **net_input)

    def _attention_kernel(self, src_tokens: Tensor) -> AbstractContextManager[None]:
        if src_tokens.is_cuda or src_tokens.size(1) > SHORT or next(self.parameters()).dtype != torch.bfloat16:
            return nullcontext()
        return sdpa_kernel(SDPBackend.MATH)


register_presets("transformer")
