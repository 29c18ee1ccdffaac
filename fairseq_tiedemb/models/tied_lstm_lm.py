"""LSTM language models: Zaremba et al. 2014, with the weight tying and projection of Press & Wolf 2016."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional

from fairseq.models import register_model
from fairseq.modules import FairseqDropout
from torch import nn

from ..modules.lstm import LSTMStack
from ..modules.variational_lstm import VariationalLSTM
from ._options import DROPOUT_HELP, first_given
from ._recipe import register_preset
from ._recurrent_lm import RecurrentLM, RecurrentLMConfig


@dataclass
class TiedLSTMLMConfig(RecurrentLMConfig):
    """Options of ``tied_lstm_lm``; sizes are Zaremba et al.'s small model."""

    dropout: float = field(
        default=0.0,
        metadata={"help": "dropout probability between layers, and default of the other dropout probabilities"},
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

    Dropout is that of Zaremba et al. (2014), with a new mask for every step, or the variational dropout of Gal &
    Ghahramani (2016), with one mask for all steps of a row.
    """

    @classmethod
    def build_stack(cls, cfg: Any) -> LSTMStack | VariationalLSTM:
        """The LSTM layers; raises ValueError for both kinds of dropout."""
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


# Sizes, dropout and training, and their sources: config/NAME.yaml.
preset = partial(register_preset, TiedLSTMLM, TiedLSTMLMConfig)
preset("zaremba_lm_small", 'The small model of Zaremba et al. 2014; Press & Wolf 2016, table 6, "Small".')
preset("zaremba_lm_small_wt", 'Press & Wolf 2016, table 6, "Small + WT".', ties=True)
preset(
    "zaremba_lm_small_pr",
    'Press & Wolf 2016, table 6, "Small + PR", with the bias that P has in their code.',
    projects=True,
)
preset(
    "zaremba_lm_small_wt_pr",
    'Press & Wolf 2016, table 6, "Small + WT + PR", with the bias that P has in their code.',
    ties=True,
    projects=True,
)
preset("zaremba_lm_medium", "The medium model of Zaremba et al. 2014.")
preset("zaremba_lm_medium_wt", "The medium model with weight tying.", ties=True)
preset("zaremba_lm_large", 'The large model of Zaremba et al. 2014; Press & Wolf 2016, table 5, "Large".')
preset("zaremba_lm_large_wt", 'Press & Wolf 2016, table 5, "Large + WT".', ties=True)
preset("gal_lm_small", "The small model with variational dropout, at rates chosen for its size.")
preset("gal_lm_small_wt", "The small model with variational dropout and weight tying.", ties=True)
preset(
    "gal_lm_large",
    'The large model with variational dropout of Gal & Ghahramani 2016; Press & Wolf 2016, table 5, "Large + BD + WD".',
)
preset("gal_lm_large_wt", 'Press & Wolf 2016, table 5, "Large + BD + WT", which has no weight decay.', ties=True)
