"""fairseq's dropout and attention, done faster."""

from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout, MultiheadAttention
from torch import Tensor

from ..modules.dropout import dropout

# Words up to which `Attention` is taken: with 25 to 400, self-attention takes 0.2 to 0.7 of the time of torch's kernel,
# that to the source 0.7 to 1.0 of fairseq's (bfloat16, one Intel core, AMX). Beyond, the kernel needs less memory.
SHORT = 512
OPTIONS = ("incremental_state", "before_softmax", "need_head_weights")
FLAGS = ("use_xformers", "bias_k", "add_zero_attn", "onnx_trace", "skip_embed_dim_check")


class Dropout(FairseqDropout):
    """fairseq's dropout by ``dropout``: in float32 bit for bit."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Drops numbers in training, or always where ``--retain-dropout`` keeps it."""
        return dropout(x, self.p, self.training or self.apply_during_inference, inplace)


def dropouts(cfg: Any, side: str, owner: str) -> list[Dropout]:
    """Two dropouts, of the embeddings and the outputs of a side, for a module of the class ``owner``."""
    given = getattr(cfg, f"{side}_dropout_in"), getattr(cfg, f"{side}_dropout_out")
    return [Dropout(cfg.dropout if own is None else own, owner) for own in given]


class Attention(MultiheadAttention):
    """fairseq's attention; in half precision on a CPU, short texts have joined projections and few copies.

    Scores are rounded before the softmax, as those of the source are by fairseq.
    """

    def forward(self, query: Tensor, key: Any, value: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        """What T queries (T, B, C) find among S keys (S, B, C), and mean weights (B, T, S) or None; see fairseq's."""
        if self._is_unusual(query, key, value, options):
            return super().forward(query, key, value, **options)
        (length, bsz, _), rows = query.shape, query.size(1) * self.num_heads
        if query is key:
            q, k, v = self._projected(query, self.q_proj, self.k_proj, self.v_proj)
        else:
            (q,), (k, v) = self._projected(query, self.q_proj), self._projected(key, self.k_proj, self.v_proj)
        mask, padding_BS = options.get("attn_mask"), options.get("key_padding_mask")
        mask = query.new_zeros(()) if mask is None else mask.to(query.dtype)
        if padding_BS is not None:  # not by -inf: where all keys are padding it would give NaN
            mask = mask.masked_fill(padding_BS.bool().unsqueeze(1), torch.finfo(mask.dtype).min / 2)
            mask = mask.repeat_interleave(self.num_heads, 0)
        scores = torch.baddbmm(mask.expand(rows, length, len(key)), q, k.transpose(1, 2), alpha=self.scaling)
        # In float32, rows shorter than the processor's vectors take a third of the time, longer ones twice as long.
        weights = scores.softmax(-1, torch.float32 if len(key) < 32 else None).to(query.dtype)
        attended = torch.bmm(self.dropout_module(weights), v).view(bsz, self.num_heads, length, -1)
        attended = self.out_proj(attended.permute(2, 0, 1, 3).reshape(query.shape))
        weights = weights.view(bsz, self.num_heads, length, -1)
        return attended, weights.mean(1, dtype=torch.float32) if options.get("need_weights", True) else None

    def _is_unusual(self, query: Tensor, key: Any, value: Any, options: dict[str, Any]) -> bool:
        if query.device.type != "cpu" or query.element_size() != 2 or key is None or key is not value:
            return True
        hooks = [layer._forward_pre_hooks for layer in (self.q_proj, self.k_proj, self.v_proj)]  # --quant-noise-pq
        asked = [options.get(name) for name in OPTIONS] + [getattr(self, name, None) for name in FLAGS]
        is_asked = any(hooks) or any(each is not None and each is not False for each in asked)
        return is_asked or key.size(1) != query.size(1) or max(len(query), len(key)) > SHORT

    def _projected(self, x: Tensor, *projections: Any) -> tuple[Tensor, ...]:
        """Projections of x (T, B, C), each (B H, T, d), as one product."""
        weight, bias = (torch.cat([getattr(layer, name) for layer in projections]) for name in ("weight", "bias"))
        joined = F.linear(x, weight, bias).view(*x.shape[:2], len(projections), self.num_heads, self.head_dim)
        return joined.permute(2, 1, 3, 0, 4).flatten(1, 2).unbind()


OURS = {FairseqDropout: Dropout, MultiheadAttention: Attention}  # same parameters, and in float32 same numbers
