"""The conditional GRU layer of DL4MT (cGRU), and its variant with LSTM cells."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ..kept import Keeping
from ..precision import exact_dtype
from ..products import over_rows, packed, product
from .attention import AttentionGradients, Source, attend, powers
from .cells import Cell, add_product, for_gradients, for_products, rounded, without_autocast
from .initialization import STD, gaussian_or_orthogonal_


class ConditionalLayer(Keeping):
    """Recurrent decoder layer: two cells with attention between them.

        s1 = cell1(input y_{t-1}, state s_{t-1});   c_t = attention(query s1);   s_t = cell2(input c_t, state s1)

    The first cell's bias is on the input side, the second cell's on the recurrent side. For a GRU this matters, because
    the recurrent side is inside the reset product. ``energy_bias`` comes from DL4MT: the softmax ignores it, so its
    gradient is zero. The whole layer is one autograd Function; see ``cells.py``. ``annotation_size`` is C, the width of
    the source annotations and of attention's hidden layer.

    Source: Firat & Cho 2016; nyu-dl/dl4mt-tutorial session2/nmt.py, ``gru_cond_layer``; Press & Wolf 2016, table 8.
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
        """Runs all time steps from y (T, B, I) and a state h or [h, c] (B, K).

        Without gradients a sentence of ``source`` may have several rows here. With ``projected``, also without
        gradients, its keys are ``powers``, and its annotations, and so the contexts, begin with their share of the
        second cell's gates; see ``ConditionalDecoder``.

        Returns:
            States h (T, B, H), contexts (T, B, C), attention weights (T, B, S) without gradient, last state (B, K).
        """
        weights = self.weight_input, self.weight_hidden1, self.weight_query, self.weight_hidden2
        of_input, hidden1, query, hidden2 = self.kept(
            lambda keeps: [packed(w) for w in weights] if keeps else weights, weights
        )
        return _ConditionalRecurrence.apply(
            self.cell,
            product(inputs_TBI.flatten(0, 1), of_input, self.bias_input).unflatten(0, inputs_TBI.shape[:2]),
            state_BK,
            hidden1,
            query,
            self.energy,
            self.energy_bias,
            None if projected else self.weight_context,
            hidden2,
            self.bias_hidden2,
            *source,
        )


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
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        size, dtype, exact = hidden1_GH.size(1), hidden1_GH.dtype, exact_dtype(hidden1_GH)
        gates_TBG = gates_TBG.to(exact)
        source = Source(annotations_nSC.to(dtype), keys_nSA if context_GC is None else powers(keys_nSA), padding_nS)
        steps, bsz, _ = gates_TBG.shape
        states = gates_TBG.new_empty(steps + 1, *state_BK.shape)
        states[0] = state_BK
        hidden = for_products(states[..., :size], dtype)
        rounded(states[0, :, :size], hidden[0])
        middle = torch.empty_like(states[1:])
        middle_hidden = for_products(middle[..., :size], dtype)
        saved1 = gates_TBG.new_empty(steps, bsz, cell.kept * size)
        saved2 = torch.empty_like(saved1)
        contexts = bias2_G.new_empty(steps, bsz, annotations_nSC.size(2))
        weights = bias2_G.new_empty(steps, bsz, annotations_nSC.size(1))
        queries = gates_TBG.new_empty(steps, bsz, len(energy_A))
        hidden1, query, hidden2 = (packed(weight, steps) for weight in (hidden1_GH, query_AH, hidden2_GH))
        context = None if context_GC is None else packed(context_GC, steps)
        for t in range(steps):
            state, between = (states[t], hidden[t]), (middle[t], middle_hidden[t])
            cell.step(gates_TBG[t], state, hidden1, None, saved1[t], between)
            powers(2 * product(middle_hidden[t], query), queries[t])
            weights[t], _ = attend(source, queries[t], energy_A, contexts[t])
            gates = contexts[t, :, : len(hidden2_GH)] if context is None else product(contexts[t], context)
            cell.step(gates, between, hidden2, bias2_G, saved2[t], (states[t + 1], hidden[t + 1]))
        ctx.cell = cell
        ctx.save_for_backward(
            states, hidden, middle, middle_hidden, saved1, saved2, contexts, weights, queries, *source,
            hidden1_GH, query_AH, energy_A, context_GC, hidden2_GH,
        )  # fmt: skip
        ctx.mark_non_differentiable(weights)
        # A copy of the last state, since two outputs that share memory are refused.
        return hidden[1:], contexts, weights, states[-1].to(dtype, copy=True)

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(
        ctx: Any, grad_hidden_TBH: Tensor, grad_contexts_TBC: Tensor, _: Tensor, grad_last_BK: Tensor
    ) -> tuple[Tensor | None, ...]:
        (states, hidden, middle, middle_hidden, saved1, saved2, contexts, weights, queries, *source,
         hidden1_GH, query_AH, energy_A, context_GC, hidden2_GH) = ctx.saved_tensors  # fmt: skip
        cell, size, dtype = ctx.cell, hidden1_GH.size(1), hidden1_GH.dtype
        rolled = [weight.roll(cell.rolled * size, 0) for weight in (hidden1_GH, hidden2_GH)]
        transposed = (for_gradients(weight, len(saved1)) for weight in (*rolled, query_AH, context_GC))
        hidden1, hidden2, query, context = transposed
        attention = AttentionGradients(Source(*source), energy_A)
        grads1, grads2 = cell.derivatives(saved1, states[:-1]), cell.derivatives(saved2, middle)
        products1, products2 = for_products(grads1, dtype), for_products(grads2, dtype)
        grad_contexts = grad_contexts_TBC.clone(memory_format=torch.contiguous_format)
        grad_queries = torch.empty_like(queries, dtype=dtype)
        grad_state = grad_last_BK.to(states.dtype, copy=True)
        for t in reversed(range(len(saved1))):
            grad_state[:, :size] += grad_hidden_TBH[t]
            grad_state = cell.step_backward(grad_state, saved2[t], hidden2, grads2[t], products2[t])
            add_product(grad_contexts[t], cell.of_inputs(products2[t]), context)
            grad_queries[t] = attention.step(queries[t], weights[t], grad_contexts[t])
            add_product(grad_state[:, :size], grad_queries[t], query, 2)
            grad_state = cell.step_backward(grad_state, saved1[t], hidden1, grads1[t], products1[t])

        grad_energy, grad_keys = attention.finish()

        def over_recurrent_steps(grads_TBG: Tensor, inputs_TBH: Tensor) -> Tensor:
            return over_rows(cell.of_recurrent(grads_TBG), inputs_TBH).roll(-cell.rolled * size, 0)

        return (
            None,
            cell.of_inputs(products1),
            grad_state,
            over_recurrent_steps(products1, hidden[:-1]),
            over_rows(grad_queries, middle_hidden).mul_(2),
            grad_energy,
            torch.zeros_like(energy_A[:1]),
            over_rows(cell.of_inputs(products2), contexts),
            over_recurrent_steps(products2, middle_hidden),
            cell.of_recurrent(grads2).sum((0, 1)).roll(-cell.rolled * size, 0).to(dtype),
            torch.bmm(weights.permute(1, 2, 0), grad_contexts.transpose(0, 1)),
            grad_keys,
            None,
        )
