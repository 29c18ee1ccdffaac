"""Attention translation of Press & Wolf 2016, table 8: DL4MT's conditional GRU, and the same with LSTM cells."""

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.models import (
    FairseqEncoder,
    FairseqEncoderDecoderModel,
    FairseqIncrementalDecoder,
    register_model,
)
from fairseq.modules import FairseqDropout
from omegaconf import II
from torch import Tensor, nn

from ..embedding import EmbeddingRoles, SharedEmbedding, embedding_roles
from ..modules.attention import Source
from ..modules.cells import CELLS, Cell
from ..modules.conditional_cell import ConditionalLayer
from ..modules.initialization import STD, gaussian_or_orthogonal_
from ..modules.recurrent import BidirectionalLayer, RecurrentLayer
from ..output_loss import OutputLoss
from ._options import (
    SharingConfig,
    check_joined_dictionary,
    check_ranges,
    check_shared_sizes,
    describe_sharing,
    first_given,
    load_pretrained,
)

logger = logging.getLogger(__name__)

DROPOUT_HELP = "dropout probability {}; --dropout if not given"


@dataclass
class LSTMNMTConfig(SharingConfig):
    """Options of ``lstm_nmt``; names and default sizes are those of fairseq's ``lstm``."""

    # ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

    cell: ChoiceEnum(list(CELLS)) = field(  # type: ignore[valid-type]
        default="lstm", metadata={"help": "recurrent cell of encoder and decoder"}
    )
    dropout: float = field(default=0.1, metadata={"help": "dropout probability wherever no other is given"})
    encoder_embed_dim: int = field(default=512, metadata={"help": "encoder embedding dimension"})
    encoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained encoder embeddings"})
    encoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train encoder embeddings"})
    encoder_hidden_size: int = field(default=512, metadata={"help": "encoder hidden size, of each direction"})
    encoder_layers: int = field(default=1, metadata={"help": "number of encoder layers, all bidirectional"})
    encoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of encoder embeddings")}
    )
    encoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of encoder outputs, and between encoder layers")}
    )
    decoder_embed_dim: int = field(default=512, metadata={"help": "decoder embedding dimension"})
    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained decoder embeddings"})
    decoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train decoder embeddings"})
    decoder_hidden_size: int = field(default=512, metadata={"help": "decoder hidden size"})
    decoder_layers: int = field(
        default=1, metadata={"help": "number of decoder layers; attention is in the first, the others stand on it"}
    )
    decoder_out_embed_dim: int = field(
        default=512, metadata={"help": "width of the deep output, which is that of the output embedding"}
    )
    decoder_dropout_in: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of decoder embeddings")}
    )
    decoder_dropout_out: Optional[float] = field(
        default=None, metadata={"help": DROPOUT_HELP.format("of the deep output, and between decoder layers")}
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


@dataclass
class DL4MTConfig(LSTMNMTConfig):
    """Options of ``dl4mt``: the sizes of Press & Wolf 2016, section 4 (embeddings 500, hidden 1000, no dropout)."""

    cell: ChoiceEnum(list(CELLS)) = field(  # type: ignore[valid-type]
        default="gru", metadata={"help": "recurrent cell of encoder and decoder"}
    )
    dropout: float = field(default=0.0, metadata={"help": "dropout probability wherever no other is given"})
    encoder_embed_dim: int = field(default=500, metadata={"help": "encoder embedding dimension"})
    encoder_hidden_size: int = field(default=1000, metadata={"help": "encoder hidden size, of each direction"})
    decoder_embed_dim: int = field(default=500, metadata={"help": "decoder embedding dimension"})
    decoder_hidden_size: int = field(default=1000, metadata={"help": "decoder hidden size"})
    decoder_out_embed_dim: int = field(
        default=500, metadata={"help": "width of the deep output, which is that of the output embedding"}
    )


class RecurrentEncoder(FairseqEncoder):
    """Bidirectional recurrent encoder, and all that the decoder needs of the source, computed once.

    Annotations x_j = [h_forward_j, h_backward_j]; attention keys x_j W + b; the decoder's initial state
    tanh(mean_j(x_j) W + b), the mean over words.

    Args:
        dictionary: source dictionary.
        embed_tokens: table of the encoder's input.
        cell: recurrent cell.
        hidden_size: H of each direction.
        num_layers: layers, each of which reads both directions of the one below.
        state_size: width of the decoder's initial state, all layers together.
        dropout_in: dropout of the embeddings.
        dropout_out: dropout of every layer's output.
        max_source_positions: longest sentence accepted, in tokens.

    Source: nyu-dl/dl4mt-tutorial session2/nmt.py, ``build_model``.
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: SharedEmbedding,
        *,
        cell: Cell,
        hidden_size: int,
        num_layers: int,
        state_size: int,
        dropout_in: float,
        dropout_out: float,
        max_source_positions: int,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.output_units = 2 * hidden_size
        self.max_source_positions = max_source_positions
        self.dropout_in = FairseqDropout(dropout_in, module_name=type(self).__name__)
        self.dropout_out = FairseqDropout(dropout_out, module_name=type(self).__name__)
        widths = [embed_tokens.embedding_dim] + [self.output_units] * (num_layers - 1)
        self.layers = nn.ModuleList(BidirectionalLayer(width, hidden_size, cell) for width in widths)
        self.keys = _linear(self.output_units, self.output_units)
        self.bridge = _linear(self.output_units, state_size)

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **_: Any) -> dict[str, Any]:
        """Encodes a batch.

        Args:
            src_tokens: source words (B, S), padded on either side.
            src_lengths: not needed; padding is read off the words.

        Returns:
            ``source``, what attention reads, and ``state``, the decoder's initial state.
        """
        padding_BS = src_tokens.eq(self.embed_tokens.padding_idx)
        x = self.dropout_in(self.embed_tokens.embed(src_tokens))
        for layer in self.layers:
            x = self.dropout_out(layer(x, padding_BS))
        lengths = (~padding_BS).sum(1, keepdim=True)
        state = torch.tanh(self.bridge(x.sum(1) / lengths.to(x.dtype)))
        return {"source": Source(x, 2 * self.keys(x), padding_BS), "state": state}

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Selects rows; the beams of a sentence that stand side by side go on sharing one copy.

        fairseq calls this at every step of beam search, mostly with an order that moves beams within their sentence:
        then nothing is copied at all.
        """
        beams = encoder_out.get("beams", 1)
        sentences, counts = torch.unique_consecutive(new_order // beams, return_counts=True)
        beams = int(counts[0]) if len(counts) else 1
        # The backward pass of the conditional layer has one row a sentence.
        if torch.is_grad_enabled() or not counts.eq(beams).all():
            sentences, beams = new_order // encoder_out.get("beams", 1), 1
        source, state = encoder_out["source"], encoder_out["state"]
        if len(sentences) != len(state) or not torch.equal(sentences, torch.arange(len(state)).to(sentences)):
            source = Source(*(part.index_select(0, sentences) for part in source))
            state = state.index_select(0, sentences)
        return {**encoder_out, "source": source, "state": state, "beams": beams}

    def max_positions(self) -> int:
        return self.max_source_positions


class ConditionalDecoder(FairseqIncrementalDecoder):
    """Conditional recurrent decoder with a deep output of the embedding's width.

        t = tanh(s_t W1 + b1 + y_{t-1} W2 + b2 + c_t W3 + b3);   scores = output table's scores of t

    The first input is a zero vector and not the embedding of the end of sentence. Layers above the first read the
    states below them and take no part in attention; the deep output reads the top one.

    Args:
        dictionary: target dictionary.
        embed_tokens: table of the decoder's input.
        output: table of the decoder's output; the same object when tied.
        cell: recurrent cell.
        hidden_size: H.
        num_layers: layers.
        annotation_size: C, width of the encoder's annotations.
        dropout_in: dropout of the embeddings.
        dropout_out: dropout of the deep output and between layers.
        max_target_positions: longest sentence accepted, in tokens.

    Source: nyu-dl/dl4mt-tutorial session2/nmt.py, ``build_model`` and ``gru_cond_layer``.
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: SharedEmbedding,
        output: SharedEmbedding,
        *,
        cell: Cell,
        hidden_size: int,
        num_layers: int,
        annotation_size: int,
        dropout_in: float,
        dropout_out: float,
        max_target_positions: int,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.output = output
        self.end_of_sentence = dictionary.eos()
        self.max_target_positions = max_target_positions
        self.dropout_in = FairseqDropout(dropout_in, module_name=type(self).__name__)
        self.dropout_out = FairseqDropout(dropout_out, module_name=type(self).__name__)
        self.layer = ConditionalLayer(embed_tokens.embedding_dim, hidden_size, annotation_size, cell)
        self.upper_layers = nn.ModuleList(RecurrentLayer(hidden_size, hidden_size, cell) for _ in range(num_layers - 1))
        width = output.embedding_dim
        self.readout_state = _linear(hidden_size, width, orthogonal=False)
        self.readout_input = _linear(embed_tokens.embedding_dim, width, orthogonal=False)
        self.readout_context = _linear(annotation_size, width, orthogonal=False)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, Any] | None = None,
        features_only: bool = False,
        **_: Any,
    ) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Decodes with the right previous words, or one step with an incremental state.

        Args:
            prev_output_tokens: previous words (B, T); a zero vector stands for the end of sentence.
            encoder_out: result of the encoder.
            incremental_state: fairseq's cache; then only the last column of the previous words is read.
            features_only: return deep outputs and not scores.

        Returns:
            Scores (B, T, V) or features (B, T, D), and the attention weights (B, T, S) under ``attn``.
        """
        features_TBD, weights_TBS = self.extract_features(prev_output_tokens, encoder_out, incremental_state)
        x = features_TBD.transpose(0, 1)
        return x if features_only else self.output.scores(x), {"attn": [weights_TBS.transpose(0, 1)]}

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, Any],
        incremental_state: dict[str, Any] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Deep outputs (T, B, D) and attention weights (T, B, S)."""
        state = encoder_out["state"]
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            cached = self.get_incremental_state(incremental_state, "state")
            state = state if cached is None else cached["state"]
        state = state.repeat_interleave(len(prev_output_tokens) // len(state), 0)
        is_first = prev_output_tokens.eq(self.end_of_sentence).unsqueeze(-1)
        embedded = self.embed_tokens.embed(prev_output_tokens).masked_fill(is_first, 0.0)
        embedded = self.dropout_in(embedded).transpose(0, 1)

        first_state, *upper_states = state.chunk(1 + len(self.upper_layers), 1)
        if incremental_state is not None:
            self.project(encoder_out)
        projected = encoder_out.get("projected", False)
        x, contexts, weights, last_state = self.layer(embedded, first_state, encoder_out["source"], projected=projected)
        last_states = [last_state]
        for layer, upper_state in zip(self.upper_layers, upper_states, strict=True):
            x, last_state = layer(self.dropout_out(x), upper_state)
            last_states.append(last_state)
        if incremental_state is not None:
            self.set_incremental_state(incremental_state, "state", {"state": torch.cat(last_states, 1)})

        deep = self.readout_state(x) + self.readout_input(embedded)
        deep += contexts[..., -deep.size(-1) :] if projected else self.readout_context(contexts)
        return self.dropout_out(torch.tanh(deep)), weights

    def project(self, encoder_out: dict[str, Any]) -> None:
        """Replaces annotations x_j by all that is ever made of the contexts c = sum_j a_j x_j, in place.

        Attention's weights sum to one, so sum_j a_j (x_j W + b) = c W + b: what the second cell and the readout make of
        a context can be computed once for every source word, instead of once for every step and beam. Worth it only
        where beams share a sentence, hence for step-by-step decoding; needs no gradients.
        """
        if "projected" in encoder_out or torch.is_grad_enabled():
            return
        annotations = encoder_out["source"].annotations_nSC
        parts = (nn.functional.linear(annotations, self.layer.weight_context), self.readout_context(annotations))
        encoder_out["source"] = encoder_out["source"]._replace(annotations_nSC=torch.cat(parts, -1))
        encoder_out["projected"] = True

    def loss(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, Any], target: Tensor, label_smoothing: float
    ) -> OutputLoss:
        """Cross entropy of the targets that are not padding, summed; see ``output_loss``."""
        features_TBD, _ = self.extract_features(prev_output_tokens, encoder_out)
        target_TB = target.t()
        is_word = target_TB.ne(self.output.padding_idx)
        return self.output.loss(features_TBD[is_word], target_TB[is_word], label_smoothing=label_smoothing)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Selects rows of the cached state."""
        cached = self.get_incremental_state(incremental_state, "state")
        if cached is not None:
            self.set_incremental_state(
                incremental_state, "state", {"state": cached["state"].index_select(0, new_order)}
            )

    def max_positions(self) -> int:
        return self.max_target_positions


@register_model("lstm_nmt", dataclass=LSTMNMTConfig)
class AttentionNMTModel(FairseqEncoderDecoderModel):
    """Translation with a bidirectional encoder and a conditional decoder; embeddings shared two, three ways or not.

    Parameters with embedding width e, hidden size d (everywhere) and the GRU cell, as DL4MT has them: core
    12ed + 26d^2 + 17d + e^2 + 3e + 1, plus e(Vs + 2Vt) + Vt untied, e(Vs + Vt) + Vt with weight tying, eVj + Vj with
    three-way weight tying.

    Source: Press & Wolf 2016, section 4 and table 8.
    """

    shares_decoder: ClassVar[bool] = False
    shares_all: ClassVar[bool] = False
    # As fairseq's lstm draws them, uniform in +-0.1. From DL4MT's 0.01, made for Adadelta, Adam stays at the unigrams.
    embedding_std: ClassVar[float] = 0.1 / 3**0.5
    computes_loss: ClassVar[bool] = True

    @classmethod
    def build_model(cls, cfg: LSTMNMTConfig, task: Any) -> "AttentionNMTModel":
        """Builds the model from its options.

        Raises:
            ValueError: for options out of range, sizes or dictionaries that cannot be shared, word vectors that do not
                fit, or ``--left-pad-target``.
        """
        check_ranges(cfg)
        source, target = task.source_dictionary, task.target_dictionary
        if getattr(task.cfg, "left_pad_target", False) is True:
            raise ValueError(
                "--left-pad-target: needs False, since the decoder starts at the first column; got True. Leave it out."
            )
        # A preset shares, whatever the flags say; so passing its flag as well changes nothing.
        share_all = cfg.share_all_embeddings or cls.shares_all
        share_decoder = share_all or cfg.share_decoder_input_output_embed or cls.shares_decoder
        if share_all:
            check_joined_dictionary(source, target)
        if share_decoder:
            check_shared_sizes(
                share_all=share_all,
                source_dim=cfg.encoder_embed_dim,
                target_dim=cfg.decoder_embed_dim,
                output_dim=cfg.decoder_out_embed_dim,
            )
        roles = embedding_roles(
            source_size=len(source),
            target_size=len(target),
            source_dim=cfg.encoder_embed_dim,
            target_dim=cfg.decoder_embed_dim,
            output_dim=cfg.decoder_out_embed_dim,
            padding_idx=target.pad(),
            share_decoder=share_decoder,
            share_all=share_all,
            method=str(cfg.sharing_method),
            std=cls.embedding_std,
        )
        _load_and_freeze(cfg, roles, source, target)
        cell = CELLS[str(cfg.cell)]
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
            roles.output,
            cell=cell,
            hidden_size=cfg.decoder_hidden_size,
            num_layers=cfg.decoder_layers,
            annotation_size=encoder.output_units,
            dropout_in=first_given(cfg.decoder_dropout_in, cfg.dropout),
            dropout_out=first_given(cfg.decoder_dropout_out, cfg.dropout),
            max_target_positions=cfg.max_target_positions,
        )
        model = cls(encoder, decoder)
        logger.info(describe_sharing(cfg._name or cls.__name__, model, roles, str(cfg.sharing_method)))
        return model

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        target: Tensor | None = None,
        label_smoothing: float = 0.0,
        features_only: bool = False,
        **_: Any,
    ) -> OutputLoss | tuple[Tensor, dict[str, list[Tensor]]]:
        """Scores of the words, or the loss of ``target`` without ever holding them.

        Args:
            src_tokens: source words (B, S).
            src_lengths: their lengths (B,).
            prev_output_tokens: previous target words (B, T).
            target: right target words (B, T); then the loss is returned, computed here so that wrappers of the model
                (data parallel) see all of it.
            label_smoothing: of the loss.
            features_only: return deep outputs and not scores.
        """
        encoder_out = self.encoder(src_tokens, src_lengths)
        if target is not None:
            return self.decoder.loss(prev_output_tokens, encoder_out, target, label_smoothing)
        return self.decoder(prev_output_tokens, encoder_out, features_only=features_only)


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
    """The baseline of Press & Wolf 2016, table 8."""

    embedding_std = STD


@register_model("dl4mt_wt", dataclass=DL4MTConfig)
class DL4MTWT(DL4MT):
    """The model with decoder weight tying of Press & Wolf 2016, table 8."""

    shares_decoder = True


@register_model("dl4mt_twwt", dataclass=DL4MTConfig)
class DL4MTTWWT(DL4MT):
    """The model with three-way weight tying of Press & Wolf 2016, table 8."""

    shares_all = True


def _linear(inputs: int, outputs: int, *, orthogonal: bool = True) -> nn.Linear:
    """A linear layer with DL4MT's initial weights: bias zero, square matrices orthogonal unless said otherwise."""
    layer = nn.Linear(inputs, outputs)
    if orthogonal:
        gaussian_or_orthogonal_(layer.weight)
    else:
        nn.init.normal_(layer.weight, std=STD)
    nn.init.zeros_(layer.bias)
    return layer


def _load_and_freeze(cfg: LSTMNMTConfig, roles: EmbeddingRoles, source: Any, target: Any) -> None:
    if cfg.encoder_embed_path:
        load_pretrained(roles.source, cfg.encoder_embed_path, source, flag="--encoder-embed-path")
    if cfg.decoder_embed_path:
        load_pretrained(roles.target, cfg.decoder_embed_path, target, flag="--decoder-embed-path")
    roles.source.weight.requires_grad_(not cfg.encoder_freeze_embed)
    if cfg.decoder_freeze_embed:
        roles.target.weight.requires_grad_(False)
