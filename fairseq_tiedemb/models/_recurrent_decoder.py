"""The decoder of recurrent language models."""

from typing import Any, Protocol

from torch import Tensor, nn

from ..modules.dropout import WordDropout
from ..outputs import Bands, OutputLayer
from ._stream_decoder import StreamDecoder


class RecurrentStack(Protocol):
    """What stands between the input vectors and the projection."""

    hidden_size: int

    def initial_state(self, bsz: int) -> Tensor:
        """A state of zeros, (L, B, K)."""

    def __call__(self, inputs_TBI: Tensor, state_LBK: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, H) and the last state."""


class RecurrentDecoder(StreamDecoder):
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
        super().__init__(dictionary, embed_tokens, output)
        self.adaptive_softmax = output.head.layers if isinstance(output.head, Bands) else None
        self.stack = stack
        self.projection = output.projection
        self.word_dropout = WordDropout(word_dropout)
        self.dropout_in = dropout_in
        self.dropout_out = dropout_out

    def output_layer(self, features: Tensor) -> Tensor:
        """Scores of the words (*, V), or what an adaptive softmax is to score."""
        return super().output_layer(features) if self.adaptive_softmax is None else self.output.transformed(features)

    def features(
        self,
        prev_output_tokens: Tensor,
        incremental_state: dict[str, Any] | None = None,
        stream_position: int | None = None,
    ) -> Tensor:
        """Features (B, T, H), of the last column alone (B, 1, H) once a search has a state; see ``forward``."""
        state = self.stack.initial_state(len(prev_output_tokens))
        if stream_position is not None:
            state = self.streams[self.training].at(stream_position, state)
        elif incremental_state is not None:
            kept = self.get_incremental_state(incremental_state, "recurrent")
            if kept is not None:
                state, prev_output_tokens = kept["state"], prev_output_tokens[:, -1:]
        vectors_BTD = self.word_dropout(self.embed_tokens(prev_output_tokens), prev_output_tokens)
        hidden, state = self.stack(self.dropout_in(vectors_BTD.transpose(0, 1)), state)
        if stream_position is not None:
            self.carry(stream_position + prev_output_tokens.size(1), state)
        elif incremental_state is not None:
            self.set_incremental_state(incremental_state, "recurrent", {"state": state})
        return self.dropout_out(hidden).transpose(0, 1)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Moves the beams' states to where the beams are now."""
        kept = self.get_incremental_state(incremental_state, "recurrent")
        if kept is not None:
            self.set_incremental_state(
                incremental_state, "recurrent", {"state": kept["state"].index_select(1, new_order)}
            )
