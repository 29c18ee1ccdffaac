"""fairseq's Transformer language model with shared embeddings."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.models import register_model
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from ..checkpoints.meaning import SHARING_IN_FAIRSEQS_MODELS
from ._options import PROJECTION_BIAS_HELP, PROJECTION_HELP, SHARING_METHOD_HELP
from ._tied_model import TiedModel
from ._transplant import EMBEDDING_RANK_HELP, check_options, register_presets, transplant


@dataclass
class TiedTransformerLanguageModelConfig(TransformerLanguageModelConfig):
    """Options of fairseq's ``transformer_lm``, and those of shared embeddings."""

    sharing_method: str = field(default="plain", metadata={"help": SHARING_METHOD_HELP})
    embedding_rank: Optional[int] = field(default=None, metadata={"help": EMBEDDING_RANK_HELP})
    projection: bool = field(default=False, metadata={"help": PROJECTION_HELP})
    projection_bias: bool = field(default=False, metadata={"help": PROJECTION_BIAS_HELP})


@register_model("tied_transformer_lm", dataclass=TiedTransformerLanguageModelConfig)
class TiedTransformerLanguageModel(TiedModel, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with a sharing method, also for adaptive input (``--adaptive-input``).

    The bands share tables with ``--tie-adaptive-weights``. Otherwise like ``tied_transformer``.

    Source: Baevski & Auli 2019 (adaptive input); Liu et al. 2020.
    """

    meaning = SHARING_IN_FAIRSEQS_MODELS

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "TiedTransformerLanguageModel":
        """Builds fairseq's model and replaces its tables; raises ValueError for conflicting options."""
        check_options(args, adaptive_input=True)
        model = super().build_model(args, task)
        transplant(model, args, name="tied_transformer_lm")
        return model


register_presets("transformer_lm")
