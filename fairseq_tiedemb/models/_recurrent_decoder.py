"""The family of recurrent language models, and their decoder."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..modules.dropout import VariationalDropout, WordDropout
from ..outputs import Bands
from ..plan import Family, Settings, Widths
from ._stream_decoder import StreamDecoder
from ._tables import Tables


def _widths(settings: Settings) -> Widths:
    width = settings("decoder_embed_dim")
    return Widths(width, settings("decoder_hidden_size"), projected=width)


UNEQUAL = ("--decoder-embed-dim equal to --decoder-hidden-size, or --projection", "--projection")
RECURRENT = Family(_widths, UNEQUAL, equal_widths=("decoder_embed_dim", "decoder_hidden_size"))


class RecurrentDecoder(StreamDecoder):
    """Recurrent decoder: input table, recurrent layers, output layer.

        h_t, state_t = stack(embed(w_{t-1}), state_{t-1});   logits_t = output layer of h_t

    Without ``dropouts``, of the embeddings and the outputs, the outputs have variational dropout. The adaptive softmax
    of ``Bands`` is registered here, where fairseq's criterion ``adaptive_loss`` looks for it.

    Source: Zaremba et al. 2014, section 3; Press & Wolf 2016, section 3.
    """

    def __init__(self, dictionary: Any, tables: Tables, stack: Any, cfg: Any, dropouts: Sequence[nn.Module] = ()):
        super().__init__(dictionary, tables)
        head = tables.output.head
        self.adaptive_softmax = head.layers if isinstance(head, Bands) else None
        self.stack = stack
        self.projection = tables.output.projection
        self.word_dropout = WordDropout(cfg.dropout_words)
        self.dropout_in, self.dropout_out = dropouts or (nn.Identity(), VariationalDropout(cfg.dropout_outputs))
        # The last layer's outputs (T, B, H) of the last training batch, before and after dropout; () before the first.
        # None unless a penalty reads them; ``regularizers.mark_words`` adds the mask of words.
        self.activations: tuple[Tensor, ...] | None = None

    def make_generation_fast_(self, retain_dropout: bool = False, **_: Any) -> None:
        """Raises ValueError for ``--retain-dropout``, which only fairseq's own dropout would follow."""
        if retain_dropout:
            raise ValueError("--retain-dropout: needs a model without recurrent layers; got one with. Leave it out.")

    def output_layer(self, features: Tensor) -> Tensor:
        """Logits (*, V); for an adaptive softmax its input features, as fairseq expects."""
        return super().output_layer(features) if self.adaptive_softmax is None else self.output.transformed(features)

    def features(self, prev_output_tokens: Tensor, incremental_state: Any, stream_position: int | None) -> Tensor:
        """Features (B, T, H); only the last column (B, 1, H) if the incremental state has a state. See ``forward``."""
        state = self.stack.initial_state(len(prev_output_tokens))
        if stream_position is not None:
            state = self.streams[self.training].at(stream_position, state)
        elif incremental_state is not None:
            kept = self.get_incremental_state(incremental_state, "recurrent")
            if kept is not None:
                state, prev_output_tokens = kept, prev_output_tokens[:, -1:]
        vectors_BTD = self.word_dropout(self.embed_tokens(prev_output_tokens), prev_output_tokens)
        hidden, state = self.stack(self.dropout_in(vectors_BTD.transpose(0, 1)), state)
        if stream_position is not None:
            self.carry(stream_position + prev_output_tokens.size(1), state)
        elif incremental_state is not None:
            self.set_incremental_state(incremental_state, "recurrent", state)
        outputs = self.dropout_out(hidden)
        if self.training and self.activations is not None:
            self.activations = (hidden, outputs)
        return outputs.transpose(0, 1)

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        kept = self.get_incremental_state(incremental_state, "recurrent")
        if kept is not None:
            self.set_incremental_state(incremental_state, "recurrent", kept.index_select(1, new_order))
