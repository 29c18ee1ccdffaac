"""fairseq's Transformer language model with shared embeddings."""

from dataclasses import dataclass

from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig

from ._fairseqs import LANGUAGE_MODEL, FairseqsLMConfig, FairseqsModel, register_tied


@dataclass
class TiedTransformerLanguageModelConfig(FairseqsLMConfig, TransformerLanguageModelConfig):
    """Options of fairseq's ``transformer_lm``, and those of shared embeddings and output layers."""


@register_tied("transformer_lm", dataclass=TiedTransformerLanguageModelConfig)
class TiedTransformerLanguageModel(FairseqsModel, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with a sharing method, also for adaptive input (``--adaptive-input``).

    The bands share tables with ``--tie-adaptive-weights``. Otherwise like ``tied_transformer``.

    Source: Baevski & Auli 2019 (adaptive input); Liu et al. 2020.
    """

    family = LANGUAGE_MODEL
