"""fairseq's Transformer language model with shared embeddings."""

from dataclasses import dataclass

from fairseq.models import register_model
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from ..checkpoints.meaning import OUTPUT_LAYER, SHARING_IN_FAIRSEQS_MODELS
from ._fairseqs import LANGUAGE_MODEL, FairseqsLMConfig, FairseqsModel, register_presets


@dataclass
class TiedTransformerLanguageModelConfig(FairseqsLMConfig, TransformerLanguageModelConfig):
    """Options of fairseq's ``transformer_lm``, and those of shared embeddings and output layers."""


@register_model("tied_transformer_lm", dataclass=TiedTransformerLanguageModelConfig)
class TiedTransformerLanguageModel(FairseqsModel, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with a sharing method, also for adaptive input (``--adaptive-input``).

    The bands share tables with ``--tie-adaptive-weights``. Otherwise like ``tied_transformer``.

    Source: Baevski & Auli 2019 (adaptive input); Liu et al. 2020.
    """

    name = "tied_transformer_lm"
    family = LANGUAGE_MODEL
    meaning = (*SHARING_IN_FAIRSEQS_MODELS, *OUTPUT_LAYER)


register_presets("transformer_lm")
