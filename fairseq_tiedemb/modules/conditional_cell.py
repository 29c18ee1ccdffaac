"""The conditional GRU layer of DL4MT (cGRU), and its variant with LSTM cells."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .attention import AttentionGradients, Source, attend
from .cells import Cell, state_dtype, without_autocast
from .initialization import STD, gaussian_or_orthogonal_


class ConditionalLayer(nn.Module):
    """Recurrent decoder layer: two cells with attention between them.

        s1 = cell1(input y_{t-1}, state s_{t-1});   c_t = attention(query s1);   s_t = cell2(input c_t, state s1)

    The first cell's bias is on the input side, the second cell's on the recurrent side. For a GRU this matters, because
    the recurrent side is inside the reset product. ``energy_bias`` comes from DL4MT: the softmax ignores it, so its
    gradient is zero. The whole layer is one autograd Function; see ``cells.py``.

    Args:
        input_size: width of y.
        hidden_size: H.
        annotation_size: C, width of the source annotations and of attention's hidden layer.
        cell: one of ``cells.CELLS``.

    Source: Firat & Cho 2016; nyu-dl/dl4mt-tutorial session2/nmt.py, ``gru_cond_layer``; the model of Press & Wolf 2016,
    table 8.
    """

    def __init__(self, input_size: int, hidden_size: int, annotation_size: int, cell: Cell):
        super().__init__()
        self.cell = cell
        self.hidden_size = hidden_size
        gates = cell.gates * hidden_size
        self.weight_input = nn.Parameter(torch.empty(gates, input_size))
        self.bias_input = nn.Parameter(torch.zeros(gates))
        self.weight_hidden1 = nn.Parameter(torch.empty(gates, hidden_size))
        self.weight_query = nn.Parameter(torch.empty(annotation_size, hidden_size))
        self.energy = nn.Parameter(torch.empty(annotation_size))
        self.energy_bias = nn.Parameter(torch.zeros(1))
        self.weight_context = nn.Parameter(torch.empty(gates, annotation_size))
        self.weight_hidden2 = nn.Parameter(torch.empty(gates, hidden_size))
        self.bias_hidden2 = nn.Parameter(torch.zeros(gates))
        for weight in (self.weight_input, self.weight_hidden1, self.weight_context, self.weight_hidden2):
            gaussian_or_orthogonal_(weight, blocks=cell.gates)
        gaussian_or_orthogonal_(self.weight_query)
        nn.init.normal_(self.energy, std=STD)

    def forward(
        self, inputs_TBI: Tensor, state_BK: Tensor, source: Source, *, projected: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Runs all time steps.

        Args:
            inputs_TBI: y, the embedded previous tokens.
            state_BK: s_0, h or [h, c].
            source: inputs of attention; without gradients B may be a multiple of its n sentences.
            projected: whether the annotations, and so the contexts c_t, begin with their share of the second cell's
                gates; only without gradients. See ``ConditionalDecoder``.

        Returns:
            States h (T, B, H), contexts (T, B, C), attention weights (T, B, S) without gradient, last state (B, K).
        """
        states, contexts, weights = _ConditionalRecurrence.apply(
            self.cell,
            F.linear(inputs_TBI, self.weight_input, self.bias_input),
            state_BK,
            self.weight_hidden1,
            self.weight_query,
            self.energy,
            self.energy_bias,
            None if projected else self.weight_context,
            self.weight_hidden2,
            self.bias_hidden2,
            *source,
        )
        return states[..., : self.hidden_size], contexts, weights, states[-1]


class _ConditionalRecurrence(torch.autograd.Function):
    @staticmethod
    @without_autocast
    def forward(
        ctx: Any,
        cell: Cell,
        gates_TBG: Tensor,
        state_BK: Tensor,
        hidden1_GH: Tensor,
        query_AH: Tensor,
        energy_A: Tensor,
        energy_bias: Tensor,
        context_GC: Tensor | None,
        hidden2_GH: Tensor,
        bias2_G: Tensor,
        annotations_nSC: Tensor,
        keys_nSA: Tensor,
        padding_nS: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = hidden1_GH.dtype
        gates_TBG, state_BK = gates_TBG.to(state_dtype(hidden1_GH)), state_BK.to(state_dtype(hidden1_GH))
        source = Source(annotations_nSC.to(dtype), keys_nSA.to(dtype), padding_nS)
        steps, bsz, _ = gates_TBG.shape
        size = hidden1_GH.size(1)
        states = state_BK.new_empty(steps + 1, *state_BK.shape)
        states[0] = state_BK
        middle = torch.empty_like(states[1:])
        saved1 = state_BK.new_empty(steps, bsz, cell.kept * size)
        saved2 = torch.empty_like(saved1)
        contexts = hidden1_GH.new_empty(steps, bsz, annotations_nSC.size(2))
        weights = hidden1_GH.new_empty(steps, bsz, annotations_nSC.size(1))
        queries = hidden1_GH.new_empty(steps, bsz, len(energy_A))
        for t in range(steps):
            cell.step(gates_TBG[t], states[t], hidden1_GH, None, saved1[t], middle[t])
            torch.mm(middle[t, :, :size].to(dtype), query_AH.t(), out=queries[t]).mul_(2)  # attention takes 2q
            weights[t], contexts[t] = attend(source, queries[t], energy_A)
            gates = contexts[t, :, : len(hidden2_GH)] if context_GC is None else torch.mm(contexts[t], context_GC.t())
            cell.step(gates, middle[t], hidden2_GH, bias2_G, saved2[t], states[t + 1])
        ctx.cell = cell
        ctx.save_for_backward(
            states, middle, saved1, saved2, contexts, weights, queries, *source,
            hidden1_GH, query_AH, energy_A, context_GC, hidden2_GH,
        )  # fmt: skip
        ctx.mark_non_differentiable(weights)
        return states[1:].to(dtype), contexts, weights

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(ctx: Any, grad_states_TBK: Tensor, grad_contexts_TBC: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (states, middle, saved1, saved2, contexts, weights, queries, annotations_BSC, keys_BSA, padding_BS,
         hidden1_GH, query_AH, energy_A, context_GC, hidden2_GH) = ctx.saved_tensors  # fmt: skip
        source = Source(annotations_BSC, keys_BSA, padding_BS)
        cell, size, dtype = ctx.cell, hidden1_GH.size(1), hidden1_GH.dtype
        attention = AttentionGradients(source, energy_A)
        grads1, grads2 = cell.derivatives(saved1, states[:-1]), cell.derivatives(saved2, middle)
        grad_contexts = torch.empty_like(contexts)
        grad_queries = torch.empty_like(queries)
        grad_state = torch.zeros_like(states[0])
        for t in reversed(range(len(saved1))):
            grad_state += grad_states_TBK[t]
            grad_state = cell.step_backward(grad_state, saved2[t], hidden2_GH, grads2[t])
            grad_gates = cell.of_inputs(grads2[t]).to(dtype)
            torch.addmm(grad_contexts_TBC[t], grad_gates, context_GC, out=grad_contexts[t])
            grad_queries[t] = attention.step(queries[t], weights[t], grad_contexts[t])
            grad_state[:, :size] += (grad_queries[t] @ query_AH).mul_(2)
            grad_state = cell.step_backward(grad_state, saved1[t], hidden1_GH, grads1[t])

        grad_energy, grad_keys = attention.finish()

        def over_all_steps(grads_TBG: Tensor, inputs_TBI: Tensor) -> Tensor:
            return grads_TBG.to(dtype).flatten(0, 1).t() @ inputs_TBI.to(dtype).flatten(0, 1)

        grad_recurrent2 = cell.of_recurrent(grads2)
        return (
            None,
            cell.of_inputs(grads1),
            grad_state,
            over_all_steps(cell.of_recurrent(grads1), states[:-1, :, :size]),
            over_all_steps(grad_queries, middle[..., :size]).mul_(2),
            grad_energy,
            torch.zeros_like(energy_A[:1]),
            over_all_steps(cell.of_inputs(grads2), contexts),
            over_all_steps(grad_recurrent2, middle[..., :size]),
            grad_recurrent2.sum((0, 1)).to(dtype),
            torch.bmm(weights.permute(1, 2, 0), grad_contexts.transpose(0, 1)),
            grad_keys,
            None,
        )
