"""What the recurrent language models have in common: tables, projection, the state carried over, the loss."""

# ruff: noqa: UP045 (fairseq's parser understands Optional[X], not X | None)

import argparse
import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar, Optional, Protocol

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models import FairseqIncrementalDecoder, FairseqLanguageModel
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..modules.dropout import VariationalDropout, WordDropout
from ..output_loss import OutputLoss
from ..sharing import SHARING_METHODS, sharing_method
from ._options import SHARING_METHOD_HELP, check_ranges, load_pretrained
from ._recipe import add_recipe
from ._stream_state import StreamState

logger = logging.getLogger(__name__)


class RecurrentStack(Protocol):
    """What stands between the input vectors and the projection."""

    hidden_size: int

    def initial_state(self, bsz: int) -> Tensor:
        """A state of zeros, (L, B, K)."""

    def __call__(self, inputs_TBI: Tensor, state_LBK: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, H) and the last state."""


@dataclass
class RecurrentLMConfig(FairseqDataclass):
    """Options that recurrent language models share; names are those of fairseq's ``lstm_lm`` where it has them."""

    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "weight tying: input and output embeddings are one table"}
    )
    sharing_method: ChoiceEnum(list(SHARING_METHODS)) = field(  # type: ignore[valid-type]
        default="plain", metadata={"help": SHARING_METHOD_HELP}
    )
    decoder_embed_dim: int = field(
        default=200, metadata={"help": "embedding dimension; another than the hidden size needs --projection"}
    )
    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "file of pretrained embeddings"})
    decoder_freeze_embed: bool = field(default=False, metadata={"help": "do not train input embeddings"})
    decoder_hidden_size: int = field(default=200, metadata={"help": "hidden size"})
    projection: bool = field(
        default=False, metadata={"help": "a matrix P between the last layer and the output table (Press & Wolf 2016)"}
    )
    projection_bias: bool = field(
        default=False, metadata={"help": "P has a bias, as in the paper's code; its presets have it"}
    )
    no_projection_bias: bool = field(default=False, metadata={"help": "P has no bias, whatever the preset says"})
    dropout_words: float = field(
        default=0.0, metadata={"help": "variational dropout: probability with which a word type is dropped from a row"}
    )
    dropout_inputs: float = field(
        default=0.0, metadata={"help": "variational dropout: probability in the masks of each layer's inputs"}
    )
    dropout_states: float = field(
        default=0.0, metadata={"help": "variational dropout: probability in the masks of the recurrent states"}
    )
    dropout_outputs: float = field(
        default=0.0, metadata={"help": "variational dropout: probability in the mask of the last layer's outputs"}
    )
    init_range: float = field(
        default=0.1, metadata={"help": "all parameters start uniformly distributed between -init-range and init-range"}
    )


class RecurrentDecoder(FairseqIncrementalDecoder):
    """Input table, recurrent stack, projection, output table.

        h_t, state_t = stack(embed(w_{t-1}), state_{t-1});   scores_t = output table's scores of P h_t + b_P

    Args:
        dictionary: of the language.
        embed_tokens: input table.
        output: output table; the same object when tied.
        stack: recurrent layers.
        projection: P, or None for the identity.
        word_dropout: variational dropout of input words.
        dropout_in: dropout of the input vectors.
        dropout_out: dropout of the last layer's outputs.

    Source: Zaremba et al. 2014, section 3; Press & Wolf 2016, section 3.
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: SharedEmbedding,
        output: SharedEmbedding,
        stack: RecurrentStack,
        *,
        projection: nn.Linear | None,
        word_dropout: float,
        dropout_in: nn.Module,
        dropout_out: nn.Module,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.output = output
        self.stack = stack
        self.projection = projection
        self.word_dropout = WordDropout(word_dropout)
        self.dropout_in = dropout_in
        self.dropout_out = dropout_out
        # Validation comes between two training steps and must not disturb their state. Not buffers: a checkpoint of the
        # model is not tied to a number of rows.
        self.streams = {True: StreamState(), False: StreamState()}
        self._num_updates = 0

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: dict[str, Any] | None = None,
        src_lengths: Tensor | None = None,
        stream_position: int | None = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Scores of the next words (B, T, V), or features (B, T, D).

        Args:
            prev_output_tokens: previous words (B, T); with an incremental state, only the last column is read.
            encoder_out: none; there is no encoder.
            incremental_state: of generation.
            src_lengths: not needed: padding comes last, where it does no harm.
            stream_position: tokens before these in their rows, if the state is carried over; else it starts from zero.
            features_only: return features and not scores.
        """
        features = self.features(prev_output_tokens, incremental_state, stream_position).transpose(0, 1)
        return (features if features_only else self.output_layer(features)), {}

    def extract_features(self, prev_output_tokens: Tensor, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, D), see ``forward``."""
        return self.forward(prev_output_tokens, features_only=True, **kwargs)

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores of the words (*, V)."""
        return self.output.scores(features)

    def features(
        self,
        prev_output_tokens: Tensor,
        incremental_state: dict[str, Any] | None = None,
        stream_position: int | None = None,
    ) -> Tensor:
        """Features, step by step: (T, B, D); for the arguments see ``forward``."""
        state = self.stack.initial_state(len(prev_output_tokens))
        stream = self.streams[self.training]
        if stream_position is not None:
            state = stream.at(stream_position, state)
        elif incremental_state is not None:
            kept = self.get_incremental_state(incremental_state, "recurrent")
            if kept is not None:
                state, prev_output_tokens = kept["state"], prev_output_tokens[:, -1:]
        vectors_BTD = self.word_dropout(self.embed_tokens.embed(prev_output_tokens), prev_output_tokens)
        hidden, state = self.stack(self.dropout_in(vectors_BTD.transpose(0, 1)), state)
        if stream_position is not None:
            stream.carry(stream_position + prev_output_tokens.size(1), state)
            if not self.training:
                stream.forget_all_but_last()
        elif incremental_state is not None:
            self.set_incremental_state(incremental_state, "recurrent", {"state": state})
        hidden = self.dropout_out(hidden)
        return hidden if self.projection is None else self.projection(hidden)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Moves the beams' states to where the beams are now."""
        kept = self.get_incremental_state(incremental_state, "recurrent")
        if kept is not None:
            self.set_incremental_state(
                incremental_state, "recurrent", {"state": kept["state"].index_select(1, new_order)}
            )

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this before each batch of training; in a new update no batch of the last one comes again."""
        if num_updates != self._num_updates:
            self._num_updates = num_updates
            self.streams[True].forget_all_but_last()

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """Checks that a checkpoint has as many words as the dictionary.

        Raises:
            ValueError: with both numbers.
        """
        rows = len(state_dict[f"{name}.output.weight"])
        if rows != len(self.dictionary):
            raise ValueError(
                f"dict.txt: needs the {rows} words (with fairseq's own) that the model was trained with; got "
                f"{len(self.dictionary)}. Use the data folder of the training."
            )
        return state_dict

    def max_positions(self) -> int:
        """No limit: a state has no positions."""
        return 2**31 - 1


class RecurrentLM(FairseqLanguageModel):
    """A recurrent language model whose input and output embeddings may be one table.

    Attributes:
        recipe: defaults of all of fairseq's options that the preset's training needs, by name.
        ties: whether the preset ties its embeddings, whatever the flags say.
        projects: whether the preset has a projection with a bias.
    """

    recipe: ClassVar[dict[str, Any]] = {}
    ties: ClassVar[bool] = False
    projects: ClassVar[bool] = False
    computes_loss: ClassVar[bool] = True

    @classmethod
    def add_args(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the model's options, and makes the preset's recipe the command's defaults."""
        super().add_args(parser)
        if cls.recipe:
            add_recipe(parser, cls.recipe)

    @classmethod
    def build_stack(cls, cfg: Any) -> RecurrentStack:
        """Builds the recurrent layers."""
        raise NotImplementedError

    @classmethod
    def build_dropout(cls, cfg: Any) -> tuple[nn.Module, nn.Module]:
        """Builds the dropout of input vectors and of the last layer's outputs: variational."""
        return nn.Identity(), VariationalDropout(cfg.dropout_outputs)

    @classmethod
    def build_model(cls, cfg: Any, task: Any) -> "RecurrentLM":
        """Builds the model from its options.

        Raises:
            ValueError: for options out of range, widths that do not fit, or word vectors that do not fit.
        """
        check_ranges(cfg)
        if not cfg.init_range > 0:
            raise ValueError(f"--init-range: needs a positive number; got {cfg.init_range}. Use 0.1, say.")
        dictionary = task.target_dictionary
        tied = cfg.share_decoder_input_output_embed or cls.ties
        projects = cfg.projection or cls.projects
        bias = (cfg.projection_bias or cls.projects) and not cfg.no_projection_bias
        if cfg.projection_bias and not projects:
            raise ValueError("--projection-bias: needs --projection; got a model without one. Use --projection too.")
        width = cfg.decoder_embed_dim if projects else cfg.decoder_hidden_size
        if tied and width != cfg.decoder_embed_dim:
            raise ValueError(
                "--share-decoder-input-output-embed: needs --decoder-embed-dim equal to --decoder-hidden-size, or "
                f"--projection; got {cfg.decoder_embed_dim} and {cfg.decoder_hidden_size}. Use --projection."
            )
        method = str(cfg.sharing_method)
        output = SharedEmbedding(len(dictionary), width, dictionary.pad(), method=method, bias=True)
        embed_tokens = (
            output if tied else SharedEmbedding(len(dictionary), cfg.decoder_embed_dim, dictionary.pad(), method=method)
        )
        dropout_in, dropout_out = cls.build_dropout(cfg)
        decoder = RecurrentDecoder(
            dictionary,
            embed_tokens,
            output,
            cls.build_stack(cfg),
            projection=nn.Linear(cfg.decoder_hidden_size, width, bias=bias) if projects else None,
            word_dropout=cfg.dropout_words,
            dropout_in=dropout_in,
            dropout_out=dropout_out,
        )
        model = cls(decoder)
        model.reset_parameters(cfg.init_range)
        if cfg.decoder_embed_path:
            load_pretrained(embed_tokens, cfg.decoder_embed_path, dictionary, flag="--decoder-embed-path")
        if cfg.decoder_freeze_embed:
            embed_tokens.weight.requires_grad_(False)
        logger.info(model.describe(cfg._name or cls.__name__))
        return model

    def reset_parameters(self, init_range: float) -> None:
        """Draws every parameter uniformly from [-init_range, init_range], as Zaremba et al. (2014) do.

        Tables of a method that divides by the norm get rows of norm about 1: a range of sqrt(3 / D).
        """
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -init_range, init_range)
        for table in {self.decoder.embed_tokens, self.decoder.output}:
            if sharing_method(table.method).divides_by_norm:
                limit = (3.0 / table.embedding_dim) ** 0.5
                nn.init.uniform_(table.weight, -limit, limit)
            nn.init.zeros_(table.weight[table.padding_idx])

    def describe(self, name: str) -> str:
        """One line: what is shared, and the number of parameters, with and without fairseq's own symbols.

        fairseq's dictionaries have ``<s>`` and ``<pad>``, which no text has: two rows more in each table.
        """
        embed_tokens, output = self.decoder.embed_tokens, self.decoder.output
        tied = embed_tokens is output
        total = sum(parameter.numel() for parameter in self.parameters())
        extra = 2 * (output.embedding_dim + 1) + (0 if tied else 2 * embed_tokens.embedding_dim)
        return (
            f"{name}: {'input = output (weight tying)' if tied else 'input and output are two tables'}, method "
            f"{output.method}; {total:,} parameters, {total - extra:,} without the rows of <s> and <pad>"
        )

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        target: Tensor | None = None,
        label_smoothing: float = 0.0,
        **kwargs: Any,
    ) -> OutputLoss | tuple[Tensor, dict[str, Any]]:
        """Scores of the next words, or the loss of ``target`` without ever holding them.

        Args:
            src_tokens: previous words (B, T).
            src_lengths: not needed.
            target: right words (B, T), padding at the end; then the loss is returned, computed here so that wrappers of
                the model (data parallel) see all of it.
            label_smoothing: of the loss.
            kwargs: see ``RecurrentDecoder.forward``.
        """
        if target is None:
            return self.decoder(src_tokens, **kwargs)
        features_TBD = self.decoder.features(src_tokens, stream_position=kwargs.get("stream_position"))
        words = target.t().ne(self.decoder.dictionary.pad())
        return self.decoder.output.loss(features_TBD[words], target.t()[words], label_smoothing=label_smoothing)

    def carried_state(self) -> tuple[int, Tensor]:
        """Where the training stream stands: the position, and the state there (L, B, K)."""
        stream = self.decoder.streams[True]
        return stream.position, stream.states[stream.position]

    def restore_state(self, position: int, state_LBK: Tensor) -> None:
        """Puts the training stream where ``carried_state`` said it stood."""
        self.decoder.streams[True].carry(position, state_LBK)

    @property
    def projection(self) -> nn.Linear | None:
        """P, which projection regularization holds down."""
        return self.decoder.projection
