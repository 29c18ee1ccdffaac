"""The decoder of attention-based translation."""

from typing import Any

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..modules.attention import Source, powers
from ..modules.cells import CELLS
from ..modules.conditional_cell import ConditionalLayer
from ..modules.factorized import gaussian_linear
from ..modules.initialization import STD
from ..modules.recurrent_layer import RecurrentLayer
from ..outputs import OutputLayer
from ._parts import dropouts


class ConditionalDecoder(FairseqIncrementalDecoder):
    """Recurrent decoder with attention and a tanh layer, the deep output of width D, before the output layer.

        t = tanh(s_t W1 + b1 + y_{t-1} W2 + b2 + c_t W3 + b3);   logits = output layer of t

    The first input is a zero vector instead of the embedding of ``</s>``. Layers above the first read the states below
    them and do not attend; the deep output reads the top layer. ``dropout_in`` is that of the embeddings,
    ``dropout_out`` that of the deep output and between layers. The P of the output layer is registered here.

    Source: nyu-dl/dl4mt-tutorial session2/nmt.py, ``build_model`` and ``gru_cond_layer``.
    """

    def __init__(self, dictionary: Any, embed_tokens: SharedEmbedding, output: OutputLayer, cfg: Any):
        super().__init__(dictionary)
        cell, hidden_size, width = CELLS[str(cfg.cell)], cfg.decoder_hidden_size, cfg.decoder_out_embed_dim
        annotation_size = 2 * cfg.encoder_hidden_size
        self.embed_tokens = embed_tokens
        self.output = output
        self.max_target_positions = cfg.max_target_positions
        self.dropout_in, self.dropout_out = dropouts(cfg, "decoder", type(self).__name__)
        self.layer = ConditionalLayer(embed_tokens.embedding_dim, hidden_size, annotation_size, cell)
        upper = range(cfg.decoder_layers - 1)
        self.upper_layers = nn.ModuleList(RecurrentLayer(hidden_size, hidden_size, cell) for _ in upper)
        self.readout_state = gaussian_linear(hidden_size, width, std=STD, bias=True)
        self.readout_input = gaussian_linear(embed_tokens.embedding_dim, width, std=STD, bias=True)
        self.readout_context = gaussian_linear(annotation_size, width, std=STD, bias=True)
        self.projection = output.projection

    def forward(self, *args: Any, features_only: bool = False, **kwargs: Any) -> tuple[Tensor, dict[str, Any]]:
        """Logits (B, T, V) or features (B, T, D), and the attention weights (B, T, S) under ``attn``.

        In ``prev_output_tokens`` (B, T) ``</s>`` is a zero vector. An incremental state decodes only the last column.
        """
        x, extra = self.extract_features(*args, **kwargs)
        return x if features_only else self.output_layer(x), extra

    def output_layer(self, features: Tensor, **_: Any) -> Tensor:
        """Logits of the whole vocabulary (*, V) from deep outputs (*, D)."""
        return self.output.scores(features)

    def extract_features(
        self, prev_output_tokens: Tensor, encoder_out: Any, incremental_state: dict[str, Any] | None = None, **_: Any
    ) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Deep outputs (B, T, D), and the attention weights (B, T, S) under ``attn``."""
        state, source, projected = encoder_out["state"], encoder_out["source"], False
        if incremental_state is not None:
            prev_output_tokens = prev_output_tokens[:, -1:]
            cached = self.get_incremental_state(incremental_state, "state")
            state = state if cached is None else cached
            if not torch.is_grad_enabled():
                source, projected = self._projected_source(encoder_out), True
        if len(state) != len(prev_output_tokens):
            state = state.repeat_interleave(len(prev_output_tokens) // len(state), 0)
        is_first = prev_output_tokens.eq(self.dictionary.eos()).unsqueeze(-1)
        embedded = self.embed_tokens.embed(prev_output_tokens).masked_fill(is_first, 0.0)
        embedded = self.dropout_in(embedded).transpose(0, 1)

        first_state, *upper_states = state.chunk(1 + len(self.upper_layers), 1)
        x, contexts, weights, last_state = self.layer(embedded, first_state, source, projected=projected)
        last_states = last_state
        for layer, upper_state in zip(self.upper_layers, upper_states, strict=True):
            x, last_state = layer(self.dropout_out(x), upper_state)
            last_states = torch.cat((last_states, last_state), 1)
        if incremental_state is not None:
            self.set_incremental_state(incremental_state, "state", last_states)

        deep = self.readout_state(x) + self.readout_input(embedded)
        deep = deep + (contexts[..., -deep.size(-1) :] if projected else self.readout_context(contexts))
        return self.dropout_out(torch.tanh(deep)).transpose(0, 1), {"attn": [weights.transpose(0, 1)]}

    def _projected_source(self, encoder_out: dict[str, Any]) -> Source:
        """The attention source with projections of the annotations x_j, ready for the second cell and the readout.

        Attention weights sum to 1, so sum_j a_j (x_j W + b) = c W + b. The projections are computed once per source
        position instead of once per step and beam, which pays off in step-by-step decoding. ``encoder_out`` caches the
        result and is reordered with it.
        """
        if "projected_source" not in encoder_out:
            source = encoder_out["source"]
            gates = nn.functional.linear(source.annotations_nSC, self.layer.weight_context)
            values = torch.cat((gates, self.readout_context(source.annotations_nSC)), -1)
            encoder_out["projected_source"] = source._replace(annotations_nSC=values, keys_nSA=powers(source.keys_nSA))
        return encoder_out["projected_source"]

    def reorder_incremental_state(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        cached = self.get_incremental_state(incremental_state, "state")
        if cached is not None:
            self.set_incremental_state(incremental_state, "state", cached.index_select(0, new_order))

    def max_positions(self) -> int:
        return self.max_target_positions
