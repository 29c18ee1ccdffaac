"""Recurrent highway language models: Zilly et al. 2017, tied as in Press & Wolf 2016, table 5."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fairseq.models import register_model
from torch import nn

from ..modules.highway import RecurrentHighwayNetwork
from ._recipe import register_preset
from ._recurrent_lm import RecurrentLM, RecurrentLMConfig


@dataclass
class HighwayLMConfig(RecurrentLMConfig):
    """Options of ``highway_lm``."""

    decoder_depth: int = field(default=5, metadata={"help": "number of highway layers per time step"})
    transform_bias: float = field(
        default=-2.0,
        metadata={"help": "initial bias of the transform gates; negative values keep the state at first"},
    )


@register_model("highway_lm", dataclass=HighwayLMConfig)
class HighwayLM(RecurrentLM):
    """Recurrent highway network with variational dropout, and tied or untied embeddings."""

    @classmethod
    def build_stack(cls, cfg: Any) -> RecurrentHighwayNetwork:
        """The recurrent highway layer; raises ValueError for a depth below 1."""
        if cfg.decoder_depth < 1:
            raise ValueError(f"--decoder-depth: needs a positive whole number; got {cfg.decoder_depth}. Use 10, say.")
        return RecurrentHighwayNetwork(
            cfg.decoder_embed_dim,
            cfg.decoder_hidden_size,
            cfg.decoder_depth,
            dropout_i=cfg.dropout_inputs,
            dropout_h=cfg.dropout_states,
            transform_bias=cfg.transform_bias,
        )

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "HighwayLM":
        """Builds the model as ``RecurrentLM.build_model`` does, with constant transform gate biases."""
        model = super().build_model(cfg, task)
        nn.init.constant_(model.decoder.stack.bias_transform, cfg.transform_bias)
        return model


# Sizes, dropout and training, and their sources: config/NAME.yaml.
preset = partial(register_preset, HighwayLM, HighwayLMConfig)
preset("highway_lm_8x890", 'Depth 8, untied; Press & Wolf 2016, table 5, "RHN + BD".')
preset("highway_lm_8x890_wt", "Depth 8 with weight tying.", ties=True)
preset("highway_lm_9x860", "Depth 9, untied.")
preset(
    "highway_lm_9x860_wt",
    'Depth 9 with weight tying; Press & Wolf 2016, table 5, "RHN + BD + WT".',
    ties=True,
)
preset("highway_lm_10x830", "Depth 10, untied.")
preset("highway_lm_10x830_wt", "Depth 10 with weight tying.", ties=True)
