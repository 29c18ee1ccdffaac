"""Attention translation of Press & Wolf 2016, table 8: DL4MT's conditional GRU, and an LSTM variant."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.models import FairseqEncoderDecoderModel, register_model
from omegaconf import II, MISSING

from ..modules.cells import CELLS
from ..modules.initialization import STD
from ..option_checks import option
from ..plan import THREE_WAY, TYING, Family, Settings, Widths
from ._conditional_decoder import ConditionalDecoder
from ._options import (
    TRANSLATION_HEADS,
    ProjectionConfig,
    TranslationOutputConfig,
    TyingConfig,
    own_dropout,
    probability,
    size,
)
from ._pretrained import load_and_freeze
from ._recipe import register_preset, training_options, with_sizes
from ._recurrent_encoder import RecurrentEncoder
from ._tables import build_tables
from ._tied_model import TiedModel


@dataclass
class AttentionNMTConfig(ProjectionConfig, TyingConfig, TranslationOutputConfig):
    """Options, named as in fairseq's ``lstm``; presets define sizes and dropout."""

    share_all_embeddings: bool = option(
        False,
        "three-way weight tying: one table for encoder input, decoder input and output; needs "
        "fairseq-preprocess --joined-dictionary",
    )
    cell: ChoiceEnum(list(CELLS)) = option("lstm", "recurrent cell of encoder and decoder")  # type: ignore[valid-type]
    dropout: float = probability(MISSING, "default of the other dropout probabilities")
    encoder_embed_dim: int = size(MISSING, "encoder embedding dimension")
    encoder_embed_path: Optional[str] = option(None, "file of encoder embeddings, in word2vec's text format")
    encoder_freeze_embed: bool = option(False, "do not train encoder embeddings")
    encoder_hidden_size: int = size(MISSING, "encoder hidden size per direction")
    encoder_layers: int = size(1, "number of encoder layers, all bidirectional")
    encoder_dropout_in: Optional[float] = own_dropout("of encoder embeddings")
    encoder_dropout_out: Optional[float] = own_dropout("of encoder outputs, and between encoder layers")
    decoder_embed_dim: int = size(MISSING, "decoder embedding dimension")
    decoder_embed_path: Optional[str] = option(None, "file of decoder embeddings, in word2vec's text format")
    decoder_freeze_embed: bool = option(False, "do not train decoder embeddings")
    decoder_hidden_size: int = size(MISSING, "decoder hidden size")
    decoder_layers: int = size(1, "number of decoder layers; only the first one attends")
    decoder_out_embed_dim: int = size(MISSING, "width of the deep output and of the output embedding")
    decoder_dropout_in: Optional[float] = own_dropout("of decoder embeddings")
    decoder_dropout_out: Optional[float] = own_dropout("of the deep output, and between decoder layers")
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


def _widths(settings: Settings) -> Widths:
    width = settings("decoder_embed_dim")
    # P maps features to the width of the input vectors.
    return Widths(width, settings("decoder_out_embed_dim"), projected=width, encoder=settings("encoder_embed_dim"))


UNEQUAL = ("--decoder-embed-dim equal to --decoder-out-embed-dim", "--decoder-out-embed-dim {}")
LSTMNMTConfig = with_sizes(AttentionNMTConfig, "lstm_nmt")
DL4MTConfig = with_sizes(AttentionNMTConfig, "dl4mt", cell="gru")


@register_model("lstm_nmt", dataclass=LSTMNMTConfig)
class AttentionNMTModel(TiedModel, FairseqEncoderDecoderModel):
    """Recurrent translation model with attention; embeddings untied, tied in the decoder, or tied three ways.

    Parameters of DL4MT's GRU model with embedding width e and hidden size d: core 12ed + 26d^2 + 17d + e^2 + 3e + 1,
    plus e(Vs + 2Vt) + Vt untied, e(Vs + Vt) + Vt with weight tying, eVj + Vj with three-way weight tying.

    Source: Press & Wolf 2016, section 4 and table 8.
    """

    equal_widths = ("decoder_embed_dim", "decoder_out_embed_dim")
    family = Family(_widths, UNEQUAL, translates=True, equal_widths=equal_widths, heads=TRANSLATION_HEADS)
    recipe: ClassVar[dict[str, Any]] = training_options("lstm_nmt")
    recipe_yields: ClassVar[bool] = True
    # Standard deviation of fairseq's lstm, uniform in +-0.1. With DL4MT's 0.01, chosen for Adadelta, Adam at 3e-3 had
    # learnt only word frequencies after 300 updates on Multi30k.
    embedding_std: ClassVar[float] = 0.1 / 3**0.5

    @classmethod
    def build_model(cls, cfg: AttentionNMTConfig, task: Any) -> "AttentionNMTModel":
        """Builds the model; raises ValueError as ``plan_of`` and ``load_and_freeze``, and for a left-padded target."""
        if getattr(task.cfg, "left_pad_target", False) is True:
            needs = "False, since the decoder starts at the first column"
            raise ValueError(f"--left-pad-target: needs {needs}; got True. Leave it out.")
        plan, target = cls.plan_of(cfg, task), task.target_dictionary
        tables = build_tables(plan, target, std=cls.embedding_std)
        for side, words in (("encoder", task.source_dictionary), ("decoder", target)):
            load_and_freeze(tables.inputs[f"{side} input"], cfg, side, words)
        encoder = RecurrentEncoder(task.source_dictionary, tables.inputs["encoder input"], cfg)
        decoder = ConditionalDecoder(target, tables.inputs["decoder input"], tables.output, cfg)
        model = cls(encoder, decoder)
        model.start(plan, cfg._name or cls.__name__)
        return model


@register_model("dl4mt", dataclass=DL4MTConfig)
class DL4MT(AttentionNMTModel):
    """DL4MT's GRU translation model with attention, the baseline of Press & Wolf 2016, table 8."""

    recipe = training_options("dl4mt")
    embedding_std = STD


# Sizes and training: config/NAME.yaml.
preset = partial(register_preset, AttentionNMTModel, AttentionNMTConfig)
preset("lstm_nmt_wt", "``lstm_nmt`` with weight tying.", TYING)
preset("lstm_nmt_twwt", "``lstm_nmt`` with three-way weight tying.", THREE_WAY)
small = partial(preset, recipe_yields=False)
small("lstm_nmt_small", "A small ``lstm_nmt`` for some 30,000 sentence pairs, with its training recipe.")
small("lstm_nmt_small_wt", "``lstm_nmt_small`` with weight tying.", TYING)
small("lstm_nmt_small_twwt", "``lstm_nmt_small`` with three-way weight tying.", THREE_WAY)
dl4mt = partial(register_preset, DL4MT, DL4MTConfig)
dl4mt("dl4mt_wt", "``dl4mt`` with decoder weight tying; Press & Wolf 2016, table 8.", TYING)
dl4mt("dl4mt_twwt", "``dl4mt`` with three-way weight tying; Press & Wolf 2016, table 8.", THREE_WAY)
