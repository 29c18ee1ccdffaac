"""Attention with one hidden layer (Bahdanau et al. 2015), forward and backward, on plain tensors.

    e_j = v . tanh(q + k_j) + c;   a = softmax(e) over the words of the source;   context = sum_j a_j x_j

with q the query's projection, k_j = x_j W + b the *keys* and x_j the *annotations* of source position j. Keys do not
depend on the decoder, so the encoder computes them once.

The hidden layer of every step and source position is most of attention's work, and on a CPU torch's sigmoid is several
times faster than its tanh. Since tanh(z) = 2 sigmoid(2z) - 1, and a softmax does not see the constant,

    softmax(e) = softmax(2 v . u_j)   with   u_j = sigmoid(2 (q + k_j))

Rows of the decoder may outnumber those of the encoder by a whole factor, the beams of a sentence standing side by side:
then they share one copy of its annotations and keys.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Source(NamedTuple):
    """What attention reads, for n sentences.

    Attributes:
        annotations_nSC: x, (n, S, C).
        keys_nSA: k, (n, S, A).
        padding_nS: true at padding.
    """

    annotations_nSC: Tensor
    keys_nSA: Tensor
    padding_nS: Tensor


def _hidden_layer(source: Source, query_BA: Tensor) -> Tensor:
    """u = sigmoid(2 (q + k_j)) of shape (n, B / n, S, A)."""
    keys = source.keys_nSA.unsqueeze(1)
    query = query_BA.view(len(keys), -1, 1, query_BA.size(1))
    return torch.add(keys, query).mul_(2).sigmoid_()


def attend(source: Source, query_BA: Tensor, vector_A: Tensor) -> tuple[Tensor, Tensor]:
    """Attends from every row of the decoder.

    Args:
        source: what is attended to.
        query_BA: q, the beams of a sentence side by side.
        vector_A: v.

    Returns:
        Weights a (B, S), zero at padding, and contexts (B, C). The bias c changes neither.
    """
    hidden = _hidden_layer(source, query_BA)
    sentences, beams, length, width = hidden.shape
    energies = torch.mv(hidden.view(-1, width), vector_A * 2).view(sentences, beams, length)
    energies.masked_fill_(source.padding_nS.unsqueeze(1), float("-inf"))
    exact = torch.promote_types(energies.dtype, torch.float32)
    weights = torch.softmax(energies, -1, dtype=exact).to(energies.dtype)
    contexts = torch.bmm(weights, source.annotations_nSC)
    return weights.flatten(0, 1), contexts.flatten(0, 1)


class AttentionGradients:
    """Gradients of ``attend`` with one row a sentence, gathered over the steps of a decoder.

    The hidden layer u is computed again rather than kept, since it has T x B x S x A numbers. With g = d loss / d e,
    which sums to zero over a sentence as every softmax gradient does, so that constants fall out here too:

        d q   = 4 v * sum_j g_j (u_j - u_j^2)
        d k_j = 4 v * sum_steps g_j (u_j - u_j^2)
        d v   = 2 sum_steps sum_j g_j u_j
    """

    def __init__(self, source: Source, vector_A: Tensor):
        self._source, self._vector_A = source, vector_A
        self._grad_vector_A = torch.zeros_like(vector_A)
        self._grad_keys_BSA = torch.zeros_like(source.keys_nSA)

    def step(self, query_BA: Tensor, weights_BS: Tensor, grad_contexts_BC: Tensor) -> Tensor:
        """Adds one step; returns the gradient of its query (B, A)."""
        grad_weights = torch.bmm(self._source.annotations_nSC, grad_contexts_BC.unsqueeze(2)).squeeze(2)
        grad_weights -= (grad_weights * weights_BS).sum(1, keepdim=True)
        grad_energies_BS = grad_weights.mul_(weights_BS)
        hidden = _hidden_layer(self._source, query_BA).squeeze(1)
        row = grad_energies_BS.unsqueeze(1)
        self._grad_vector_A += torch.bmm(row, hidden).sum((0, 1))
        slope = hidden.addcmul_(hidden, hidden, value=-1)
        self._grad_keys_BSA.addcmul_(grad_energies_BS.unsqueeze(2), slope)
        return torch.bmm(row, slope).squeeze(1).mul_(self._vector_A * 4)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Gradients of v (A,) and of the keys (B, S, A) over all steps."""
        return self._grad_vector_A.mul_(2), self._grad_keys_BSA.mul_(self._vector_A * 4)
