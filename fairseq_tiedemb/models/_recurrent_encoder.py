"""The encoder of attention-based translation."""

from itertools import groupby
from typing import Any

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..modules.attention import Source
from ..modules.cells import CELLS
from ..modules.initialization import dl4mt_linear
from ..modules.recurrent_layer import BidirectionalLayer
from ._parts import dropouts


class RecurrentEncoder(FairseqEncoder):
    """Bidirectional recurrent encoder that also computes the attention keys and the decoder's initial state.

    Annotations are x_j = [h_forward_j, h_backward_j], keys x_j W + b, and the initial state is tanh(mean_j(x_j) W + b)
    with the mean over tokens without padding, as wide as the states of all decoder layers. Layers read both directions.

    Source: nyu-dl/dl4mt-tutorial session2/nmt.py, ``build_model``.
    """

    def __init__(self, dictionary: Any, embed_tokens: SharedEmbedding, cfg: Any):
        super().__init__(dictionary)
        cell, hidden_size = CELLS[str(cfg.cell)], cfg.encoder_hidden_size
        self.embed_tokens = embed_tokens
        self.output_units = 2 * hidden_size
        self.max_source_positions = cfg.max_source_positions
        self.dropout_in, self.dropout_out = dropouts(cfg, "encoder", type(self).__name__)
        widths = [embed_tokens.embedding_dim] + [self.output_units] * (cfg.encoder_layers - 1)
        self.layers = nn.ModuleList(BidirectionalLayer(width, hidden_size, cell) for width in widths)
        self.keys = dl4mt_linear(self.output_units, self.output_units)
        self.bridge = dl4mt_linear(self.output_units, cfg.decoder_layers * cell.states * cfg.decoder_hidden_size)

    def forward(self, src_tokens: Tensor, src_lengths: Tensor | None = None, **_: Any) -> dict[str, Any]:
        """Encodes source tokens (B, S), padded on either side; ``src_lengths`` is ignored.

        Returns ``source``, the inputs of attention, and ``state``, the decoder's initial state.
        """
        padding_BS = src_tokens.eq(self.dictionary.pad())
        x = self.dropout_in(self.embed_tokens.embed(src_tokens))
        for layer in self.layers:
            x = self.dropout_out(layer(x, padding_BS))
        lengths = (~padding_BS).sum(1, keepdim=True)
        state = torch.tanh(self.bridge(x.sum(1) / lengths.clamp(min=1).to(x.dtype)))
        return {"source": Source(x, 2 * self.keys(x), padding_BS), "state": state}

    def reorder_encoder_out(self, encoder_out: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Selects rows; adjacent beams of a sentence keep sharing one copy.

        fairseq calls this in every step of beam search, mostly with an order that moves beams only within their
        sentence; then nothing is copied.
        """
        shared = encoder_out.get("beams", 1)
        rows = [row // shared for row in new_order.tolist()]  # of the encoder's
        counts = [len(list(same)) for _, same in groupby(rows)]
        # The backward pass of the conditional layer needs one row per sentence.
        beams = 1 if torch.is_grad_enabled() or len(set(counts)) != 1 else counts[0]
        reordered, sentences = {**encoder_out, "beams": beams}, rows[::beams]
        if sentences != list(range(len(encoder_out["state"]))):
            order = new_order.new_tensor(sentences)
            reordered["state"] = encoder_out["state"].index_select(0, order)
            for name in ("source", "projected_source"):  # the decoder adds the latter
                if name in encoder_out:
                    reordered[name] = Source(*(part.index_select(0, order) for part in encoder_out[name]))
        return reordered

    def max_positions(self) -> int:
        return self.max_source_positions
