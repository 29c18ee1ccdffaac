"""LSTM language models: Zaremba et al. 2014, with the weight tying and projection of Press & Wolf 2016."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

from fairseq.models import register_model
from fairseq.modules import FairseqDropout
from torch import nn

from ..modules.lstm import LSTMStack
from ..modules.variational_lstm import VariationalLSTM
from ._options import first_given
from ._recipe import with_defaults
from ._recurrent_lm import RecurrentLM, RecurrentLMConfig

DROPOUT_HELP = "dropout probability {}; --dropout if not given"


@dataclass
class TiedLSTMLMConfig(RecurrentLMConfig):
    """Options of ``tied_lstm_lm``; sizes are Zaremba et al.'s small model."""

    dropout: float = field(
        default=0.0, metadata={"help": "dropout probability between layers, and wherever no other is given"}
    )
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of the embeddings")}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of the last layer's outputs")}
    )
    decoder_layers: int = field(default=2, metadata={"help": "number of layers"})


@register_model("tied_lstm_lm", dataclass=TiedLSTMLMConfig)
class TiedLSTMLM(RecurrentLM):
    """LSTM language model with tied or untied embeddings, with or without projection.

    Dropout is that of Zaremba et al. (2014), drawn anew for every number, or the variational dropout of Gal &
    Ghahramani (2016), with masks that a row keeps for all its steps.
    """

    @classmethod
    def build_stack(cls, cfg: Any) -> LSTMStack | VariationalLSTM:
        """Layers of LSTM.

        Raises:
            ValueError: if both kinds of dropout are asked for.
        """
        sizes = cfg.decoder_embed_dim, cfg.decoder_hidden_size, cfg.decoder_layers
        if not _variational(cfg):
            return LSTMStack(*sizes, cfg.dropout)
        for name in ("dropout", "decoder_dropout_in", "decoder_dropout_out"):
            if getattr(cfg, name):
                raise ValueError(
                    f"--{name.replace('_', '-')}: needs 0 with variational dropout (--dropout-inputs, ...); got "
                    f"{getattr(cfg, name)}. Use one kind of dropout."
                )
        return VariationalLSTM(*sizes, dropout_i=cfg.dropout_inputs, dropout_h=cfg.dropout_states)

    @classmethod
    def build_dropout(cls, cfg: Any) -> tuple[nn.Module, nn.Module]:
        """Dropout of input vectors and of the last layer's outputs."""
        if _variational(cfg):
            return super().build_dropout(cfg)
        dropout_in = first_given(cfg.decoder_dropout_in, cfg.dropout)
        dropout_out = first_given(cfg.decoder_dropout_out, cfg.dropout)
        return FairseqDropout(dropout_in, cls.__name__), FairseqDropout(dropout_out, cls.__name__)


def _variational(cfg: Any) -> bool:
    return any((cfg.dropout_words, cfg.dropout_inputs, cfg.dropout_states, cfg.dropout_outputs))


SmallConfig = with_defaults(
    TiedLSTMLMConfig,
    "SmallConfig",
    decoder_embed_dim=200,
    decoder_hidden_size=200,
    dropout=0.0,
    init_range=0.1,
)
MediumConfig = with_defaults(
    TiedLSTMLMConfig,
    "MediumConfig",
    decoder_embed_dim=650,
    decoder_hidden_size=650,
    dropout=0.5,
    init_range=0.05,
)
LargeConfig = with_defaults(
    TiedLSTMLMConfig,
    "LargeConfig",
    decoder_embed_dim=1500,
    decoder_hidden_size=1500,
    dropout=0.65,
    init_range=0.04,
)
GalConfig = with_defaults(
    LargeConfig,
    "GalConfig",
    dropout=0.0,
    dropout_words=0.3,
    dropout_inputs=0.5,
    dropout_states=0.3,
    dropout_outputs=0.5,
)

# What the three sizes have in common: the gradient is that of a sum over time and a mean over rows, clipped.
ZAREMBA_RECIPE: dict[str, Any] = {
    "task": "contiguous_lm",
    "criterion": "tied_cross_entropy",
    "optimizer": "sgd",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "lr_scheduler": "fixed",
    "lr": [1.0],
    "sentence_avg": True,
    "batch_size": 20,
    "save_interval_updates": 1000,  # see compat.saving.recipes_save_in_mid_epoch
}


@register_model("zaremba_lm_small", dataclass=SmallConfig)
class ZarembaSmall(TiedLSTMLM):
    """The small model of Zaremba et al. 2014; Press & Wolf 2016, table 6, "Small".

    The learning rate is 1 for five epochs and then halves with each: their code first divides it in the epoch after the
    next to "max_epoch" (4).
    """

    recipe: ClassVar[dict[str, Any]] = {
        **ZAREMBA_RECIPE,
        "tokens_per_sample": 20,
        "clip_norm": 5.0,
        "force_anneal": 6,
        "lr_shrink": 0.5,
        "max_epoch": 13,
    }


@register_model("zaremba_lm_small_wt", dataclass=SmallConfig)
class ZarembaSmallWT(ZarembaSmall):
    """Press & Wolf 2016, table 6, "Small + WT"."""

    ties = True


@register_model("zaremba_lm_small_pr", dataclass=SmallConfig)
class ZarembaSmallPR(ZarembaSmall):
    """Press & Wolf 2016, table 6, "Small + PR", with the bias that P has in their code."""

    projects = True
    recipe: ClassVar[dict[str, Any]] = {**ZarembaSmall.recipe, "projection_regularization": 0.15}


@register_model("zaremba_lm_small_wt_pr", dataclass=SmallConfig)
class ZarembaSmallWTPR(ZarembaSmallPR):
    """Press & Wolf 2016, table 6, "Small + WT + PR", with the bias that P has in their code."""

    ties = True


@register_model("zaremba_lm_medium", dataclass=MediumConfig)
class ZarembaMedium(TiedLSTMLM):
    """The medium model of Zaremba et al. 2014; the learning rate is 1 for seven epochs."""

    recipe: ClassVar[dict[str, Any]] = {
        **ZAREMBA_RECIPE,
        "tokens_per_sample": 35,
        "clip_norm": 5.0,
        "force_anneal": 8,
        "lr_shrink": 1 / 1.2,
        "max_epoch": 39,
    }


@register_model("zaremba_lm_medium_wt", dataclass=MediumConfig)
class ZarembaMediumWT(ZarembaMedium):
    """The medium model with weight tying."""

    ties = True


@register_model("zaremba_lm_large", dataclass=LargeConfig)
class ZarembaLarge(TiedLSTMLM):
    """The large model of Zaremba et al. 2014; Press & Wolf 2016, table 5, "Large".

    The learning rate is 1 for fifteen epochs.
    """

    recipe: ClassVar[dict[str, Any]] = {
        **ZAREMBA_RECIPE,
        "tokens_per_sample": 35,
        "clip_norm": 10.0,
        "force_anneal": 16,
        "lr_shrink": 1 / 1.15,
        "max_epoch": 55,
    }


@register_model("zaremba_lm_large_wt", dataclass=LargeConfig)
class ZarembaLargeWT(ZarembaLarge):
    """Press & Wolf 2016, table 5, "Large + WT"."""

    ties = True


@register_model("gal_lm_large", dataclass=GalConfig)
class GalLarge(TiedLSTMLM):
    """The large model with variational dropout of Gal & Ghahramani 2016; Press & Wolf 2016, table 5, "Large + BD + WD".

    Weight decay is subtracted after the step and not multiplied by the learning rate, which is 1 for eleven epochs.
    """

    recipe: ClassVar[dict[str, Any]] = {
        **ZarembaLarge.recipe,
        "optimizer": "sgdw",
        "weight_decay": 1e-7,
        "force_anneal": 12,
    }


@register_model("gal_lm_large_wt", dataclass=GalConfig)
class GalLargeWT(GalLarge):
    """Press & Wolf 2016, table 5, "Large + BD + WT", which has no weight decay."""

    ties = True
    recipe: ClassVar[dict[str, Any]] = {**GalLarge.recipe, "weight_decay": 0.0}
