"""Recurrent highway networks as language models: Zilly et al. 2017, tied as in Press & Wolf 2016, table 5."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from fairseq.models import register_model
from torch import nn

from ..modules.highway import RecurrentHighwayNetwork
from ._recipe import with_defaults
from ._recurrent_lm import RecurrentLM, RecurrentLMConfig


@dataclass
class HighwayLMConfig(RecurrentLMConfig):
    """Options of ``highway_lm``."""

    decoder_depth: int = field(default=5, metadata={"help": "highway layers that a time step passes through"})
    transform_bias: float = field(
        default=-2.0,
        metadata={"help": "initial bias of the transform gates; negative, so that states are kept at first"},
    )


@register_model("highway_lm", dataclass=HighwayLMConfig)
class HighwayLM(RecurrentLM):
    """Recurrent highway network with variational dropout, and tied or untied embeddings."""

    @classmethod
    def build_stack(cls, cfg: Any) -> RecurrentHighwayNetwork:
        """The recurrent highway layer.

        Raises:
            ValueError: if the depth is not positive.
        """
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
        """Builds the model, see ``RecurrentLM.build_model``; the transform gates' bias is no random number."""
        model = super().build_model(cfg, task)
        nn.init.constant_(model.decoder.stack.bias_transform, cfg.transform_bias)
        return model


# The rest of the recipe of their program for the Penn Treebank; the best epoch on the validation set is the result.
HIGHWAY_RECIPE: dict[str, Any] = {
    "task": "contiguous_lm",
    "criterion": "tied_cross_entropy",
    "l2_regularization": 1e-7,
    "optimizer": "sgd",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "lr_scheduler": "fixed",
    "lr": [0.2],
    "force_anneal": 21,
    "lr_shrink": 1 / 1.02,
    "max_epoch": 500,
    "clip_norm": 10.0,
    "sentence_avg": True,
    "batch_size": 20,
    "tokens_per_sample": 35,
    "save_interval_updates": 1000,  # see compat.saving.recipes_save_in_mid_epoch
}


def _config(depth: int, size: int) -> Any:
    return with_defaults(
        HighwayLMConfig,
        f"Highway{depth}x{size}Config",
        decoder_depth=depth,
        decoder_embed_dim=size,
        decoder_hidden_size=size,
        dropout_words=0.25,
        dropout_inputs=0.75,
        dropout_states=0.25,
        dropout_outputs=0.75,
        init_range=0.04,
    )


Highway8x890Config = _config(8, 890)
Highway9x860Config = _config(9, 860)
Highway10x830Config = _config(10, 830)


@register_model("highway_lm_8x890", dataclass=Highway8x890Config)
class Highway8x890(HighwayLM):
    """Depth 8; its published perplexities are those of Press & Wolf 2016, table 5, "RHN + BD"."""

    recipe: ClassVar[dict[str, Any]] = HIGHWAY_RECIPE


@register_model("highway_lm_8x890_wt", dataclass=Highway8x890Config)
class Highway8x890WT(Highway8x890):
    """Depth 8 with weight tying."""

    ties = True


@register_model("highway_lm_9x860", dataclass=Highway9x860Config)
class Highway9x860(HighwayLM):
    """Depth 9."""

    recipe: ClassVar[dict[str, Any]] = HIGHWAY_RECIPE


@register_model("highway_lm_9x860_wt", dataclass=Highway9x860Config)
class Highway9x860WT(Highway9x860):
    """Depth 9 with weight tying; its published perplexities are those of table 5, "RHN + BD + WT"."""

    ties = True


@register_model("highway_lm_10x830", dataclass=Highway10x830Config)
class Highway10x830(HighwayLM):
    """Depth 10."""

    recipe: ClassVar[dict[str, Any]] = HIGHWAY_RECIPE


@register_model("highway_lm_10x830_wt", dataclass=Highway10x830Config)
class Highway10x830WT(Highway10x830):
    """Depth 10 with weight tying."""

    ties = True
