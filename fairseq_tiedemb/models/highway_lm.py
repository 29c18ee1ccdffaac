"""Recurrent highway language models: Zilly et al. 2017, tied as in Press & Wolf 2016, table 5."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairseq.models import register_model
from torch import nn

from ..modules.highway import RecurrentHighwayNetwork
from ..option_checks import POSITIVE, Range, option
from ..plan import TYING, Plan
from ._options import RecurrentLMConfig
from ._recipe import register_preset
from ._recurrent_decoder import RECURRENT, RecurrentDecoder
from ._stream_lm import StreamLM
from ._tables import Tables


@dataclass
class HighwayLMConfig(RecurrentLMConfig):
    """Options of ``highway_lm``."""

    decoder_depth: int = option(
        5, "number of highway layers per time step", needs=dataclasses.replace(POSITIVE, use="10, say")
    )
    transform_bias: float = option(
        -2.0,
        "initial bias of the transform gates; negative values keep the state at first",
        needs=Range("a finite number", "-2, say"),
    )


@register_model("highway_lm", dataclass=HighwayLMConfig)
class HighwayLM(StreamLM):
    """Recurrent highway network with variational dropout, and tied or untied embeddings."""

    family = RECURRENT

    @classmethod
    def build_decoder(cls, cfg: Any, words: Any, plan: Plan, tables: Tables) -> RecurrentDecoder:
        stack = RecurrentHighwayNetwork(
            cfg.decoder_embed_dim,
            cfg.decoder_hidden_size,
            cfg.decoder_depth,
            dropout_i=cfg.dropout_inputs,
            dropout_h=cfg.dropout_states,
        )
        return RecurrentDecoder(words, tables, stack, cfg)

    def reset_parameters(self, cfg: Any) -> None:
        """Draws parameters as ``StreamLM.reset_parameters`` does, but constant biases of the transform gates."""
        super().reset_parameters(cfg)
        nn.init.constant_(self.decoder.stack.bias_transform, cfg.transform_bias)


# Sizes, dropout and training, and their sources: config/NAME.yaml.
preset = partial(register_preset, HighwayLM, HighwayLMConfig)
preset("highway_lm_8x890", 'Depth 8, untied; by its figures Press & Wolf 2016, table 5, "RHN + BD".')
preset("highway_lm_8x890_wt", "Depth 8 with weight tying.", TYING)
preset("highway_lm_9x860", "Depth 9, untied.")
preset("highway_lm_9x860_wt", 'Depth 9, tied; by its figures Press & Wolf 2016, table 5, "RHN + BD + WT".', TYING)
preset("highway_lm_10x830", "Depth 10, untied.")
preset("highway_lm_10x830_wt", "Depth 10 with weight tying.", TYING)
