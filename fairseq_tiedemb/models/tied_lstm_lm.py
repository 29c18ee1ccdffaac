"""LSTM language models: Zaremba et al. 2014, with the weight tying and projection of Press & Wolf 2016."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from fairseq.models import register_model

from ..modules.lstm import LSTMStack
from ..modules.variational_lstm import VariationalLSTM
from ..option_checks import flag_of
from ..plan import TYING, Plan
from ._options import RecurrentLMConfig, own_dropout, probability, size
from ._parts import dropouts
from ._recipe import register_preset
from ._recurrent_decoder import RECURRENT, RecurrentDecoder
from ._stream_lm import StreamLM
from ._tables import Tables


@dataclass
class TiedLSTMLMConfig(RecurrentLMConfig):
    """Options of ``tied_lstm_lm``; sizes are Zaremba et al.'s small model."""

    dropout: float = probability(0.0, "dropout probability between layers, and default of the other probabilities")
    decoder_dropout_in: Optional[float] = own_dropout("of the embeddings")
    decoder_dropout_out: Optional[float] = own_dropout("of the last layer's outputs")
    decoder_layers: int = size(2, "number of layers")
    weight_dropout: float = probability(0.0, "DropConnect: probability to drop a recurrent weight (Merity et al. 2018)")


@register_model("tied_lstm_lm", dataclass=TiedLSTMLMConfig)
class TiedLSTMLM(StreamLM):
    """LSTM language model with tied or untied embeddings, with or without projection.

    Dropout is that of Zaremba et al. (2014), with a new mask for every step, or the variational dropout of Gal &
    Ghahramani (2016), with one mask for all steps of a row.
    """

    family = RECURRENT

    @classmethod
    def build_decoder(cls, cfg: Any, words: Any, plan: Plan, tables: Tables) -> RecurrentDecoder:
        """The LSTM layers around the tables; raises ValueError for both kinds of dropout."""
        sizes = cfg.decoder_embed_dim, cfg.decoder_hidden_size, cfg.decoder_layers
        if not any((cfg.dropout_words, cfg.dropout_inputs, cfg.dropout_states, cfg.dropout_outputs)):
            stack = LSTMStack(*sizes, cfg.dropout, weight_dropout=cfg.weight_dropout)
            return RecurrentDecoder(words, tables, stack, cfg, dropouts(cfg, "decoder", cls.__name__))
        for name in ("dropout", "decoder_dropout_in", "decoder_dropout_out"):
            if getattr(cfg, name):
                needs = "0 with variational dropout (--dropout-inputs, ...)"
                raise ValueError(f"{flag_of(name)}: needs {needs}; got {getattr(cfg, name)}. Use one kind of dropout.")
        rates = {"dropout_i": cfg.dropout_inputs, "dropout_h": cfg.dropout_states, "weight_dropout": cfg.weight_dropout}
        return RecurrentDecoder(words, tables, VariationalLSTM(*sizes, **rates), cfg)


PROJECTION, WITH_BIAS = ("projection", "projection_bias"), "with the bias that P has in their code."
# Sizes, dropout and training, and their sources: config/NAME.yaml.
preset = partial(register_preset, TiedLSTMLM, TiedLSTMLMConfig)
preset("zaremba_lm_small", 'The small model of Zaremba et al. 2014; Press & Wolf 2016, table 6, "Small".')
preset("zaremba_lm_small_wt", 'Press & Wolf 2016, table 6, "Small + WT".', TYING)
preset("zaremba_lm_small_pr", f'Press & Wolf 2016, table 6, "Small + PR", {WITH_BIAS}', *PROJECTION)
preset("zaremba_lm_small_wt_pr", f'Press & Wolf 2016, table 6, "Small + WT + PR", {WITH_BIAS}', TYING, *PROJECTION)
preset("zaremba_lm_medium", "The medium model of Zaremba et al. 2014.")
preset("zaremba_lm_medium_wt", "The medium model with weight tying.", TYING)
preset("zaremba_lm_large", 'The large model of Zaremba et al. 2014; Press & Wolf 2016, table 5, "Large".')
preset("zaremba_lm_large_wt", 'Press & Wolf 2016, table 5, "Large + WT".', TYING)
preset("gal_lm_small", "The small model with variational dropout, at rates chosen for its size.")
preset("gal_lm_small_wt", "The small model with variational dropout and weight tying.", TYING)
preset(
    "gal_lm_large",
    'The large model with variational dropout of Gal & Ghahramani 2016; Press & Wolf 2016, table 5, "Large + BD + WD".',
)
preset("gal_lm_large_wt", 'Press & Wolf 2016, table 5, "Large + BD + WT", which has no weight decay.', TYING)
