"""Attention translation of Press & Wolf 2016, table 8: DL4MT's conditional GRU, and an LSTM variant."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Optional

from fairseq.data import Dictionary
from fairseq.dataclass import ChoiceEnum
from fairseq.models import FairseqEncoderDecoderModel, register_model
from omegaconf import II, MISSING

from ..modules.cells import CELLS
from ..modules.initialization import STD
from ..outputs import build_output
from ..sharing import sharing_method
from ._conditional_decoder import ConditionalDecoder
from ._embedding_roles import EmbeddingRoles, embedding_roles
from ._options import (
    DROPOUT_HELP,
    SharingConfig,
    build_projection,
    check_joined_dictionary,
    check_projection,
    check_ranges,
    check_shared_sizes,
    first_given,
    load_pretrained,
)
from ._recipe import register_preset, training_options, with_sizes
from ._recurrent_encoder import RecurrentEncoder
from ._sharing import describe
from ._tied_model import TiedModel

logger = logging.getLogger(__name__)


@dataclass
class AttentionNMTConfig(SharingConfig):
    """Options, named as in fairseq's ``lstm``; presets define sizes and dropout."""

    cell: ChoiceEnum(list(CELLS)) = field(  # type: ignore[valid-type]
        default="lstm", metadata={"help": "recurrent cell of encoder and decoder"}
    )
    dropout: float = field(default=MISSING, metadata={"help": "default of the other dropout probabilities"})
    encoder_embed_dim: int = field(default=MISSING, metadata={"help": "encoder embedding dimension"})
    encoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained encoder embeddings"})
    encoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train encoder embeddings"})
    encoder_hidden_size: int = field(default=MISSING, metadata={"help": "encoder hidden size per direction"})
    encoder_layers: int = field(default=1, metadata={"help": "number of encoder layers, all bidirectional"})
    encoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of encoder embeddings")}
    )
    encoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of encoder outputs, and between encoder layers")}
    )
    decoder_embed_dim: int = field(default=MISSING, metadata={"help": "decoder embedding dimension"})
    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained decoder embeddings"})
    decoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train decoder embeddings"})
    decoder_hidden_size: int = field(default=MISSING, metadata={"help": "decoder hidden size"})
    decoder_layers: int = field(default=1, metadata={"help": "number of decoder layers; only the first one attends"})
    decoder_out_embed_dim: int = field(
        default=MISSING, metadata={"help": "width of the deep output and of the output embedding"}
    )
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of decoder embeddings")}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of the deep output, and between decoder layers")}
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


LSTMNMTConfig = with_sizes(AttentionNMTConfig, "lstm_nmt")
DL4MTConfig = with_sizes(AttentionNMTConfig, "dl4mt", cell="gru")


@register_model("lstm_nmt", dataclass=LSTMNMTConfig)
class AttentionNMTModel(TiedModel, FairseqEncoderDecoderModel):
    """Recurrent translation model with attention; embeddings untied, tied in the decoder, or tied three ways.

    Parameters of DL4MT's GRU model with embedding width e and hidden size d: core 12ed + 26d^2 + 17d + e^2 + 3e + 1,
    plus e(Vs + 2Vt) + Vt untied, e(Vs + Vt) + Vt with weight tying, eVj + Vj with three-way weight tying.

    Source: Press & Wolf 2016, section 4 and table 8.
    """

    recipe: ClassVar[dict[str, Any]] = training_options("lstm_nmt")
    recipe_yields: ClassVar[bool] = True
    shares_decoder: ClassVar[bool] = False
    shares_all: ClassVar[bool] = False
    # Standard deviation of fairseq's lstm, uniform in +-0.1. With DL4MT's 0.01, chosen for Adadelta, Adam at 3e-3 had
    # learnt only word frequencies after 300 updates on Multi30k.
    embedding_std: ClassVar[float] = 0.1 / 3**0.5

    @classmethod
    def build_model(cls, cfg: AttentionNMTConfig, task: Any) -> "AttentionNMTModel":
        """Builds the model from its options.

        Raises:
            ValueError: for options out of range, sizes, dictionaries or word vectors that do not fit, or a left-padded
                target.
        """
        check_ranges(cfg)
        source, target = task.source_dictionary, task.target_dictionary
        if getattr(task.cfg, "left_pad_target", False) is True:
            raise ValueError(
                "--left-pad-target: needs False, since the decoder starts at the first column; got True. Leave it out."
            )
        check_projection(projects=cfg.projection, bias=cfg.projection_bias)
        roles = cls._build_roles(cfg, source, target)
        cell = CELLS[str(cfg.cell)]
        projection = None
        if cfg.projection:
            projection = build_projection(
                cfg.decoder_out_embed_dim, roles.output.embedding_dim, bias=cfg.projection_bias
            )
        output = build_output(
            roles.output,
            borrowed=roles.output is roles.target,
            features_dim=cfg.decoder_out_embed_dim,
            projection=projection,
        )
        encoder = RecurrentEncoder(
            source,
            roles.source,
            cell=cell,
            hidden_size=cfg.encoder_hidden_size,
            num_layers=cfg.encoder_layers,
            state_size=cfg.decoder_layers * cell.states * cfg.decoder_hidden_size,
            dropout_in=first_given(cfg.encoder_dropout_in, cfg.dropout),
            dropout_out=first_given(cfg.encoder_dropout_out, cfg.dropout),
            max_source_positions=cfg.max_source_positions,
        )
        decoder = ConditionalDecoder(
            target,
            roles.target,
            output,
            cell=cell,
            hidden_size=cfg.decoder_hidden_size,
            num_layers=cfg.decoder_layers,
            width=cfg.decoder_out_embed_dim,
            annotation_size=encoder.output_units,
            dropout_in=first_given(cfg.decoder_dropout_in, cfg.dropout),
            dropout_out=first_given(cfg.decoder_dropout_out, cfg.dropout),
            max_target_positions=cfg.max_target_positions,
        )
        model = cls(encoder, decoder)
        logger.info(describe(model, cfg._name or cls.__name__))
        return model

    @classmethod
    def _build_roles(cls, cfg: AttentionNMTConfig, source: Dictionary, target: Dictionary) -> EmbeddingRoles:
        """The tables, shared as preset and flags say, with pretrained rows loaded and frozen tables frozen."""
        # A preset's sharing holds without the flag, so its flag may be passed too.
        share_all = cfg.share_all_embeddings or cls.shares_all
        share_decoder = share_all or cfg.share_decoder_input_output_embed or cls.shares_decoder
        by_preset = cls.shares_all if share_all else cls.shares_decoder
        flag = "--share-all-embeddings" if share_all else "--share-decoder-input-output-embed"
        asked_by = f"--arch {cfg._name}" if by_preset else flag
        # P maps features to the width of the input vectors.
        output_dim = cfg.decoder_embed_dim if cfg.projection else cfg.decoder_out_embed_dim
        if share_all:
            check_joined_dictionary(source, target, asked_by=asked_by)
            if cfg.encoder_embed_path and cfg.decoder_embed_path not in (None, "", cfg.encoder_embed_path):
                raise ValueError(
                    f"{asked_by}: needs one file of vectors for the shared table; got --encoder-embed-path "
                    f"{cfg.encoder_embed_path!r} and --decoder-embed-path {cfg.decoder_embed_path!r}. Use one of them."
                )
        if share_decoder:
            check_shared_sizes(
                share_all=share_all,
                asked_by=asked_by,
                source_dim=cfg.encoder_embed_dim,
                target_dim=cfg.decoder_embed_dim,
                output_dim=output_dim,
            )
        roles = embedding_roles(
            source_size=len(source),
            target_size=len(target),
            source_dim=cfg.encoder_embed_dim,
            target_dim=cfg.decoder_embed_dim,
            output_dim=output_dim,
            padding_idx=target.pad(),
            share_decoder=share_decoder,
            share_all=share_all,
            method=sharing_method(cfg.sharing_method, flag="--sharing-method").name,
            std=cls.embedding_std,
        )
        for side, table, dictionary in (("encoder", roles.source, source), ("decoder", roles.target, target)):
            path = getattr(cfg, f"{side}_embed_path")
            if path:
                load_pretrained(table, path, dictionary, flag=f"--{side}-embed-path")
            if getattr(cfg, f"{side}_freeze_embed"):
                table.weight.requires_grad_(False)
        return roles


@register_model("lstm_nmt_wt", dataclass=LSTMNMTConfig)
class LSTMNMTWT(AttentionNMTModel):
    """``lstm_nmt`` with weight tying."""

    shares_decoder = True


@register_model("lstm_nmt_twwt", dataclass=LSTMNMTConfig)
class LSTMNMTTWWT(AttentionNMTModel):
    """``lstm_nmt`` with three-way weight tying."""

    shares_all = True


@register_model("dl4mt", dataclass=DL4MTConfig)
class DL4MT(AttentionNMTModel):
    """DL4MT's GRU translation model with attention, the baseline of Press & Wolf 2016, table 8."""

    recipe = training_options("dl4mt")
    embedding_std = STD


@register_model("dl4mt_wt", dataclass=DL4MTConfig)
class DL4MTWT(DL4MT):
    """``dl4mt`` with decoder weight tying; Press & Wolf 2016, table 8."""

    shares_decoder = True


@register_model("dl4mt_twwt", dataclass=DL4MTConfig)
class DL4MTTWWT(DL4MT):
    """``dl4mt`` with three-way weight tying; Press & Wolf 2016, table 8."""

    shares_all = True


# Sizes and training: config/NAME.yaml.
preset = partial(register_preset, AttentionNMTModel, AttentionNMTConfig, recipe_yields=False)
preset("lstm_nmt_small", "A small ``lstm_nmt`` for some 30,000 sentence pairs, with its training recipe.")
preset("lstm_nmt_small_wt", "``lstm_nmt_small`` with weight tying.", shares_decoder=True)
preset("lstm_nmt_small_twwt", "``lstm_nmt_small`` with three-way weight tying.", shares_all=True)
