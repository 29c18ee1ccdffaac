"""The decoder of feed-forward language models."""

from typing import Any

import torch
from torch import Tensor, nn

from ..modules.feedforward import FeedForwardStack
from ._stream_decoder import StreamDecoder
from ._tables import Tables


class FeedForwardDecoder(StreamDecoder):
    """Decoder over a window: embeddings of the n - 1 previous tokens, fully connected layers, output layer.

        x_t = [e(w_{t-n+1}); ...; e(w_{t-1})];    features_t = deep output(stack(x_t))

    A text is preceded by n - 1 ``</s>``. The state carried along a stream is the last n - 2 input tokens of each row,
    (1, B, n - 2), int64; the batch's own first column follows them. ``order`` is n, 2 or more. ``deep_output`` is a
    nonlinear one; a linear one is the output layer's P.

    Source: Bengio et al. 2003, section 2.
    """

    def __init__(
        self, dictionary: Any, tables: Tables, stack: FeedForwardStack, *, order: int, deep_output: nn.Module | None
    ):
        super().__init__(dictionary, tables)
        self.stack = stack
        self.projection = tables.output.projection
        self.order = order
        self.deep_output = deep_output

    def features(self, prev_output_tokens: Tensor, incremental_state: Any, stream_position: int | None) -> Tensor:
        """Features (B, T, D); with an incremental state only the last column (B, 1, D). See ``forward``."""
        words = self._with_context(prev_output_tokens, stream_position)
        if incremental_state is not None:
            words = words[:, 1 - self.order :]
        # One lookup of all contexts and one product: faster than windows over single embeddings, which are copied, and
        # than one product per context position, whose sums are copied.
        features = self.stack(self.embed_tokens(words.unfold(1, self.order - 1, 1)).flatten(2))
        return features if self.deep_output is None else self.deep_output(features)

    def _with_context(self, tokens_BT: Tensor, stream_position: int | None) -> Tensor:
        """Tokens with the n - 2 tokens before them, (B, n - 2 + T)."""
        state = tokens_BT.new_full((1, len(tokens_BT), self.order - 2), self.dictionary.eos())
        if stream_position is None:
            leading = tokens_BT.eq(self.dictionary.pad()).cummin(1).values
            return torch.cat((state[0], tokens_BT.masked_fill(leading, self.dictionary.eos())), 1)
        state = self.streams[self.training].at(stream_position, state)
        words = torch.cat((state[0], tokens_BT), 1)
        length = tokens_BT.size(1)
        self.carry(stream_position + length, words[:, length:].unsqueeze(0).contiguous())
        return words
