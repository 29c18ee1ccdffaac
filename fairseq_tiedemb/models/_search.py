"""Beam search of our Transformers on a CPU: fairseq's decoder, a step at a time, by fewer and faster operations.

fairseq moves the keys and values of every beam at each step. Here they stay where they were written, and a mask says
which of them each beam has come from: beams are few, and products of several rows fast.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerDecoder, TransformerEncoder
from fairseq.modules import LayerDropModuleList
from fairseq.modules.transformer_layer import TransformerDecoderLayer, TransformerDecoderLayerBase
from torch import Tensor, nn

from ..kept import Keeping
from ..precision import exact
from ..products import packed, product
from ._parts import Attention, Dropout

STEPS = 16  # by which the memory for keys and values grows
SEARCH = "search"  # its place in fairseq's incremental state
SENTENCES = "sentences"  # of the rows of fairseq's encoder output
LAYERS = (TransformerDecoderLayer, TransformerDecoderLayerBase)
KNOWN = {nn.ModuleList, LayerDropModuleList, *LAYERS, Attention, nn.Linear, nn.LayerNorm, Dropout}
UNKNOWN = ("attn_ln", "c_attn", "ffn_layernorm", "w_resid", "bias_k", "project_in_dim", "project_out_dim")
FLAGS = ("cross_self_attention", "add_zero_attn", "apply_during_inference", "skip_embed_dim_check", "onnx_trace")


class SearchEncoder(TransformerEncoder):
    """fairseq's encoder, whose output stays as it is while beams change places within their sentence."""

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Rows ``new_order`` (R,) of the output; on a CPU it keeps the sentence of each row (R,), too."""
        if new_order.device.type != "cpu":
            return super().reorder_encoder_out(encoder_out, new_order)
        (before,) = encoder_out.get(SENTENCES, [torch.arange(encoder_out["encoder_out"][0].size(1))])
        sentences = before[new_order]
        if torch.equal(sentences, before):
            return encoder_out
        return super().reorder_encoder_out(encoder_out, new_order) | {SENTENCES: [sentences]}


class SearchDecoder(Keeping, TransformerDecoder):
    """fairseq's decoder; in evaluation on a CPU without gradients, steps of a search are those of ``Search``."""

    def extract_features(
        self, prev_output_tokens: Tensor, encoder_out: Any = None, incremental_state: Any = None, *args: Any, **kw: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """Features (R, T, C), or of the last token (R, 1, C) of a search, and attention; see fairseq's class."""
        if incremental_state is not None and SEARCH not in incremental_state:
            incremental_state[SEARCH] = begin(self, prev_output_tokens, encoder_out, *args, *kw.values())
        search = None if incremental_state is None else incremental_state[SEARCH]
        if search is None:
            return super().extract_features(prev_output_tokens, encoder_out, incremental_state, *args, **kw)
        decoder: Any = self  # mypy takes a module's parts for tensors
        tokens_R1 = prev_output_tokens[:, -1:]
        x = decoder.embed_scale * decoder.embed_tokens(tokens_R1)
        if decoder.embed_positions is not None:
            x = x + decoder.embed_positions(prev_output_tokens, incremental_state=incremental_state)
        if decoder.layernorm_embedding is not None:
            x = decoder.layernorm_embedding(x)
        x, attention = search.step(x.squeeze(1), tokens_R1.eq(decoder.padding_idx))
        return (x if decoder.layer_norm is None else decoder.layer_norm(x)).unsqueeze(1), {"attn": [attention]}

    def reorder_incremental_state_scripting(self, incremental_state: dict[str, Any], new_order: Tensor) -> None:
        """Lets the rows of a search go on from the rows ``new_order`` (R,)."""
        search = incremental_state.get(SEARCH)
        if search is None:
            super().reorder_incremental_state_scripting(incremental_state, new_order)
        else:
            search.reorder(new_order)


def begin(decoder: Any, tokens: Tensor, encoder_out: Any, *options: Any) -> "Search | None":
    """A search with this decoder; None where fairseq's step is to be taken: on a GPU, for any unusual part."""
    parts = [decoder.dropout_module, *decoder.layers.modules()]
    if (
        torch.is_grad_enabled()
        or decoder.training
        or torch.is_autocast_enabled("cpu")
        or not (decoder.layers and encoder_out and encoder_out["encoder_padding_mask"])
        or tokens.device.type != "cpu"
        or any(each is not None and each is not False for each in options)  # layer 0, say
        or decoder.quant_noise is not None
        or any(type(part) not in KNOWN for part in parts)
        or any(getattr(part, name, None) is not None for part in (decoder, *parts) for name in UNKNOWN)
        or any(getattr(part, name, False) for part in (decoder, *parts) for name in FLAGS)
        or any(part._forward_pre_hooks or part._forward_hooks for part in parts)
        or any(layer.encoder_attn is None for layer in decoder.layers)  # --no-cross-attention
    ):
        return None
    layers = decoder.kept(lambda _: [Layer(layer) for layer in decoder.layers], decoder.layers.parameters())
    (encoded_SRC,), (padding_RS,) = encoder_out["encoder_out"], encoder_out["encoder_padding_mask"]
    (sentences,) = encoder_out.get(SENTENCES, [torch.arange(len(tokens))])
    beams = int(sentences.eq(sentences[0]).sum())
    if len(tokens) % beams or not sentences.view(-1, beams).eq(sentences[::beams, None]).all():
        beams = 1
    return Search(layers, beams, encoded_SRC[:, ::beams], padding_RS[::beams])


class Layer:
    """A decoder layer with packed weights."""

    def __init__(self, layer: Any):
        own, other = layer.self_attn, layer.encoder_attn
        self.layer, self.heads, self.scaling = layer, own.num_heads, own.scaling
        self.qkv, self.own_out = _joined(own.q_proj, own.k_proj, own.v_proj), _joined(own.out_proj)
        self.fc1, self.fc2 = _joined(layer.fc1), _joined(layer.fc2)
        self.query, self.key_value = _joined(other.q_proj), _joined(other.k_proj, other.v_proj)
        self.out = _joined(other.out_proj)

    def source(self, encoded_SBC: Tensor) -> Tensor:
        """Keys and values (2, B, H, S, d) of the source."""
        kv = self.key_value(encoded_SBC.flatten(0, 1)).view(*encoded_SBC.shape[:2], 2, self.heads, -1)
        return exact(kv.permute(2, 1, 3, 0, 4)).contiguous()

    def step(
        self, x_RC: Tensor, remember: Callable[[Tensor], Tensor], mask: Tensor, source: Tensor, source_mask_BS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Features (R, C), and weights (B, H, g, S) of the source's words; ``remember`` adds keys and values to all."""
        layer, shape = self.layer, (-1, mask.size(2), self.heads, self.layer.head_dim)
        first, norm = layer.normalize_before, layer.self_attn_layer_norm
        qkv = self.qkv(norm(x_RC) if first else x_RC).view(-1, shape[1], 3, *shape[2:])
        q, (keys, values) = qkv[:, :, 0].transpose(1, 2), remember(qkv[:, :, 1:].permute(2, 0, 3, 1, 4))
        attended = F.scaled_dot_product_attention(q, keys, values, mask)
        x_RC = x_RC + self.own_out(attended.transpose(1, 2).reshape(x_RC.shape))
        x_RC = x_RC if first else norm(x_RC)
        norm = layer.encoder_attn_layer_norm
        q = self.query(norm(x_RC) if first else x_RC).view(shape)
        attended, weights = attend(q, source, source_mask_BS, self.scaling)
        x_RC = x_RC + self.out(attended)
        x_RC = x_RC if first else norm(x_RC)
        norm = layer.final_layer_norm
        x_RC = x_RC + self.fc2(layer.activation_fn(self.fc1(norm(x_RC) if first else x_RC)))
        return (x_RC if first else norm(x_RC)), weights


class Search:
    """The state of a search of B sentences of g beams each, R = B g rows.

    A sentence has n keys, of words that any of its beams wrote; a beam attends to those to which ``mask`` (R, n) gives
    0 and not -inf: the words of its own past, but padding. Keys and values of a layer are one tensor (2, B, H, N, d)
    with room for N. Where it is used up, keys that no beam attends to go.
    """

    def __init__(self, layers: list[Layer], beams: int, encoded_SBC: Tensor, padding_BS: Tensor):
        self.layers, self.bsz, self.beams = layers, len(padding_BS), beams
        self.sources = [layer.source(encoded_SBC) for layer in layers]
        self.rooms = [source[:, :, :, :0].to(encoded_SBC.dtype) for source in self.sources]
        self.mask_Rn = torch.zeros(self.bsz * beams, 0)
        self.source_mask_BS = torch.zeros(padding_BS.shape).masked_fill_(padding_BS, -torch.inf)

    def step(self, x_RC: Tensor, is_pad_R1: Tensor) -> tuple[Tensor, Tensor]:
        """Features (R, C) of the next words, and what the last layer attends to (R, 1, S)."""
        if self.mask_Rn.size(1) and self.mask_Rn.size(1) == self.rooms[0].size(3):
            self._keep(torch.arange(self.bsz))
        own_gg = torch.full((self.beams, self.beams), -torch.inf).fill_diagonal_(0)
        own_Rg = own_gg.repeat(self.bsz, 1).masked_fill_(is_pad_R1, -torch.inf)
        self.mask_Rn = torch.cat((self.mask_Rn, own_Rg), 1)
        mask = self.mask_Rn.to(x_RC.dtype).view(self.bsz, 1, self.beams, -1)
        for index, (layer, source) in enumerate(zip(self.layers, self.sources, strict=True)):
            x_RC, weights = layer.step(x_RC, partial(self._remember, index), mask, source, self.source_mask_BS)
        return x_RC, weights.mean(1).view(len(x_RC), 1, -1).to(x_RC.dtype)

    def reorder(self, new_order: Tensor) -> None:
        """Lets row r go on from row ``new_order[r]``; keys move only where sentences leave or change places."""
        if len(new_order) % self.beams or (new_order.view(-1, self.beams) // self.beams).diff().any():
            # A caller that mixes the beams of several sentences: each becomes a sentence.
            sentences = torch.arange(self.bsz).repeat_interleave(self.beams)
            self.beams = 1
            self._keep(sentences)
        sentences = new_order[:: self.beams] // self.beams
        self.mask_Rn = self.mask_Rn.index_select(0, new_order)
        if not torch.equal(sentences, torch.arange(self.bsz)):
            self._keep(sentences)

    def _remember(self, index: int, kv: Tensor) -> Tensor:
        """Keys and values of a layer (2, B, H, n, d), of which ``kv`` (2, B, H, g, d) are new."""
        words = self.mask_Rn.size(1)
        if words > self.rooms[index].size(3):
            self.rooms[index] = F.pad(self.rooms[index], (0, 0, 0, STEPS * self.beams))
        self.rooms[index][:, :, :, words - self.beams : words] = kv
        return self.rooms[index][:, :, :, :words]

    def _keep(self, sentences_B: Tensor) -> None:
        """Goes on with these sentences, and with those of their keys that any of their beams attends to."""
        self.bsz = len(sentences_B)
        is_of_use = self.mask_Rn.view(self.bsz, self.beams, -1).eq(0).any(1)
        size = int(is_of_use.sum(1).max())
        keys_Bk = is_of_use.byte().argsort(dim=1, descending=True, stable=True)[:, :size]
        self.mask_Rn = self.mask_Rn.gather(1, keys_Bk.repeat_interleave(self.beams, 0))
        for index, room in enumerate(self.rooms):
            places = torch.arange(room.numel() // room.size(4)).view(room.shape[:4])
            places = places[:, sentences_B[:, None], :, keys_Bk].permute(2, 0, 3, 1)
            self.rooms[index] = room.view(-1, room.size(4)).index_select(0, places.flatten()).view(*places.shape, -1)
        self.sources = [source.index_select(1, sentences_B) for source in self.sources]
        self.source_mask_BS = self.source_mask_BS.index_select(0, sentences_B)


def attend(q_BgHd: Tensor, kv: Tensor, mask_BS: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """What queries find (R, C) among keys and values (2, B, H, S, d) of the source, and their weights (B, H, g, S).

    In float32 at least: in bfloat16 batched products of few rows take three times as long.
    """
    bsz, beams, heads, width = q_BgHd.shape
    keys, values = kv.flatten(1, 2)
    q = exact(q_BgHd).transpose(1, 2).reshape(-1, beams, width)
    mask = mask_BS.to(q.dtype).repeat_interleave(heads, 0).unsqueeze(1).expand(-1, beams, -1)
    weights = torch.baddbmm(mask, q, keys.transpose(1, 2), alpha=scaling).softmax(-1)
    attended = torch.bmm(weights, values).view(bsz, heads, beams, width)
    return attended.transpose(1, 2).reshape(bsz * beams, -1).to(q_BgHd.dtype), weights.view(bsz, heads, beams, -1)


def _joined(*linears: Any) -> Callable[[Tensor], Tensor]:
    """What these layers compute of one input, as one product."""
    if len(linears) == 1:  # no copy of a weight that is not packed
        return partial(product, weight=packed(linears[0].weight), bias=linears[0].bias)
    weight = torch.cat([layer.weight for layer in linears])
    bias = None if linears[0].bias is None else torch.cat([layer.bias for layer in linears])
    return partial(product, weight=packed(weight), bias=bias)
