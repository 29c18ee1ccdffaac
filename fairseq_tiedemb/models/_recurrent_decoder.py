"""The decoder of recurrent language models."""

from typing import Any, Protocol

from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from ..modules.dropout import WordDropout
from ..outputs import Bands, OutputLayer
from ..table_names import is_input_table
from ._output_decoder import OutputDecoder
from ._stream_state import StreamState


class RecurrentStack(Protocol):
    """What stands between the input vectors and the projection."""

    hidden_size: int

    def initial_state(self, bsz: int) -> Tensor:
        """A state of zeros, (L, B, K)."""

    def __call__(self, inputs_TBI: Tensor, state_LBK: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, H) and the last state."""


class RecurrentDecoder(OutputDecoder, FairseqIncrementalDecoder):
    """Input table, recurrent stack, output layer.

        h_t, state_t = stack(embed(w_{t-1}), state_{t-1});   scores_t = output layer's scores of h_t

    Args:
        dictionary: of the language.
        embed_tokens: input table, or bands of words.
        output: output layer. Of a ``Bands`` the adaptive softmax becomes the decoder's, where fairseq's criterion
            ``adaptive_loss`` looks for it; P becomes the decoder's too.
        stack: recurrent layers.
        word_dropout: variational dropout of input words.
        dropout_in: dropout of the input vectors.
        dropout_out: dropout of the last layer's outputs.

    Source: Zaremba et al. 2014, section 3; Press & Wolf 2016, section 3.
    """

    def __init__(
        self,
        dictionary: Any,
        embed_tokens: nn.Module,
        output: OutputLayer,
        stack: RecurrentStack,
        *,
        word_dropout: float,
        dropout_in: nn.Module,
        dropout_out: nn.Module,
    ):
        super().__init__(dictionary)
        self.embed_tokens = embed_tokens
        self.output = output
        self.adaptive_softmax = output.head.layers if isinstance(output.head, Bands) else None
        self.stack = stack
        self.projection = output.projection
        self.word_dropout = WordDropout(word_dropout)
        self.dropout_in = dropout_in
        self.dropout_out = dropout_out
        # Validation comes between two training steps and must not disturb their state. Not buffers: a checkpoint of the
        # model is not tied to a number of rows.
        self.streams = {True: StreamState(), False: StreamState()}
        self._num_updates: int | None = None  # until somebody counts them

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: dict[str, Any] | None = None,
        src_lengths: Tensor | None = None,
        stream_position: int | None = None,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Scores of the next words (B, T, V), or features (B, T, H).

        Args:
            prev_output_tokens: previous words (B, T); with an incremental state, only the last column is read.
            encoder_out: none; there is no encoder.
            incremental_state: of generation.
            src_lengths: not needed: padding comes last, where it does no harm.
            stream_position: tokens before these in their rows, if the state is carried over; else it starts from zero.
            features_only: return features and not scores.
        """
        features = self.features(prev_output_tokens, incremental_state, stream_position).transpose(0, 1)
        return (features if features_only else self.output_layer(features)), {"attn": None}

    def extract_features(self, prev_output_tokens: Tensor, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Features (B, T, H), see ``forward``."""
        return self.forward(prev_output_tokens, features_only=True, **kwargs)

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores of the words (*, V), or what an adaptive softmax or another head is to score."""
        return super().output_layer(features) if self.adaptive_softmax is None else self.output.transformed(features)

    def features(
        self,
        prev_output_tokens: Tensor,
        incremental_state: dict[str, Any] | None = None,
        stream_position: int | None = None,
    ) -> Tensor:
        """Features, step by step: (T, B, H); for the arguments see ``forward``."""
        state = self.stack.initial_state(len(prev_output_tokens))
        stream = self.streams[self.training]
        if stream_position is not None:
            state = stream.at(stream_position, state)
        elif incremental_state is not None:
            kept = self.get_incremental_state(incremental_state, "recurrent")
            if kept is not None:
                state, prev_output_tokens = kept["state"], prev_output_tokens[:, -1:]
        vectors_BTD = self.word_dropout(self.embed_tokens(prev_output_tokens), prev_output_tokens)
        hidden, state = self.stack(self.dropout_in(vectors_BTD.transpose(0, 1)), state)
        if stream_position is not None:
            stream.carry(stream_position + prev_output_tokens.size(1), state)
            if not self.training:
                stream.forget_all_but_last()
            elif self._num_updates is None:
                stream.forget_all_but_last(2)  # with which the last batch may still come again
        elif incremental_state is not None:
            self.set_incremental_state(incremental_state, "recurrent", {"state": state})
        return self.dropout_out(hidden)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Moves the beams' states to where the beams are now."""
        kept = self.get_incremental_state(incremental_state, "recurrent")
        if kept is not None:
            self.set_incremental_state(
                incremental_state, "recurrent", {"state": kept["state"].index_select(1, new_order)}
            )

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this before each batch of training; in a new update no batch of the last one comes again.

        Where nobody calls it, only the last batch may come again.
        """
        if num_updates != self._num_updates:
            self._num_updates = num_updates
            self.streams[True].forget_all_but_last()

    def upgrade_state_dict_named(self, state_dict: dict[str, Any], name: str) -> dict[str, Any]:
        """Checks that a checkpoint has as many words as the dictionary.

        Raises:
            ValueError: with both numbers.
        """
        words = sum(len(table) for key, table in state_dict.items() if is_input_table(key, name))
        if words and words != len(self.dictionary):
            raise ValueError(
                f"dict.txt: needs the {words} words (with fairseq's own) that the model was trained with; got "
                f"{len(self.dictionary)}. Use the data folder of the training."
            )
        return state_dict

    def max_positions(self) -> int:
        """No limit: a state has no positions."""
        return 2**31 - 1
