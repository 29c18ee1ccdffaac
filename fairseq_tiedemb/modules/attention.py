"""Attention with one hidden layer (Bahdanau et al. 2015), forward and backward, on plain tensors.

    e_j = v . tanh(q + k_j) + c;   a = softmax(e) over the words of the source;   context = sum_j a_j x_j

with q the query's projection, k_j = x_j W + b the *keys* and x_j the *annotations* of source position j. Keys do not
depend on the decoder, so the encoder computes them once.

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


def hidden_layer(source: Source, query_BA: Tensor) -> Tensor:
    """tanh(q + k_j) of shape (n, B / n, S, A)."""
    keys = source.keys_nSA.unsqueeze(1)
    query = query_BA.view(len(keys), -1, 1, query_BA.size(1))
    return torch.add(keys, query).tanh_()


def attend(source: Source, query_BA: Tensor, vector_A: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Attends from every row of the decoder.

    Args:
        source: what is attended to.
        query_BA: q, the beams of a sentence side by side.
        vector_A: v.
        bias: c, (1,). Adds the same to every e_j, so it changes nothing and its gradient is zero; DL4MT has it.

    Returns:
        Weights a (B, S), zero at padding, and contexts (B, C).
    """
    hidden = hidden_layer(source, query_BA)
    sentences, beams, length, _ = hidden.shape
    energies = torch.mv(hidden.view(-1, len(vector_A)), vector_A).view(sentences, beams, length) + bias
    energies = energies.masked_fill(source.padding_nS.unsqueeze(1), float("-inf"))
    exact = torch.promote_types(energies.dtype, torch.float32)
    weights = torch.softmax(energies, -1, dtype=exact).to(energies.dtype)
    contexts = torch.bmm(weights, source.annotations_nSC)
    return weights.flatten(0, 1), contexts.flatten(0, 1)


class AttentionGradients:
    """Gradients of ``attend`` with one row a sentence, gathered over the steps of a decoder.

    The hidden layer is computed again rather than kept, since it has T x B x S x A numbers. With g = d loss / d e,
    which sums to zero over a sentence as every softmax gradient does, and t = tanh(q + k):

        d q   = v * sum_j g_j (1 - t_j^2) = -v * sum_j g_j t_j^2
        d k_j = v * sum_steps g_j (1 - t_j^2)
        d v   = sum_steps sum_j g_j t_j
    """

    def __init__(self, source: Source, vector_A: Tensor):
        self.source, self.vector_A = source, vector_A
        self.grad_vector = torch.zeros_like(vector_A)
        self._squares = torch.zeros_like(source.keys_nSA)
        self._energies = torch.zeros_like(source.keys_nSA[..., 0])

    def step(self, query_BA: Tensor, weights_BS: Tensor, grad_contexts_BC: Tensor) -> Tensor:
        """Adds one step; returns the gradient of its query (B, A)."""
        grad_weights = torch.bmm(self.source.annotations_nSC, grad_contexts_BC.unsqueeze(2)).squeeze(2)
        grad_weights -= (grad_weights * weights_BS).sum(1, keepdim=True)
        grad_energies = grad_weights.mul_(weights_BS)
        row = grad_energies.unsqueeze(1)
        hidden = hidden_layer(self.source, query_BA).squeeze(1)
        self.grad_vector += torch.bmm(row, hidden).sum((0, 1))
        squares = hidden.square_()
        self._squares.addcmul_(grad_energies.unsqueeze(2), squares)
        self._energies += grad_energies
        return torch.bmm(row, squares).squeeze(1).mul_(self.vector_A).neg_()

    def grad_keys(self) -> Tensor:
        """Gradient of the keys (B, S, A), of all steps."""
        return self._squares.neg_().add_(self._energies.unsqueeze(2)).mul_(self.vector_A)
