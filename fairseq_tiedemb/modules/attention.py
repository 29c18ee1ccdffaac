"""Attention with one hidden layer (Bahdanau et al. 2015), forward and backward, on plain tensors.

    e_j = v . tanh(q + k_j) + c;   a = softmax(e) over the words of the source;   context = sum_j a_j x_j

with q the query's projection, k_j = x_j W + b the *keys* and x_j the *annotations* of source position j. Keys do not
depend on the decoder, so the encoder computes them once.

The hidden layer of every step and source position is most of attention's work. On some processors torch's sigmoid is
several times faster than its tanh, on others it is not (tests/benchmarks/test_attention_nmt.py tells). Since
tanh(z) = 2 sigmoid(2z) - 1, and a softmax does not see the constant, either will do:

    softmax(e) = softmax(2 v . u_j)   with   u_j = sigmoid(2q + 2k_j)

It is computed in blocks of sentences that stay in a core's cache, and in float32 at least: sigmoids lie near 1/2, where
half precision has few digits left. Functions here take 2q and 2k and need no gradients.

Rows of the decoder may outnumber those of the encoder by a whole factor, the beams of a sentence standing side by side:
then they share one copy of its annotations and keys.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Numbers of the hidden layer computed at a time: 1 MiB in float32, as much as a core's own cache holds; all on a GPU.
BLOCK = 2**18


class Source(NamedTuple):
    """What attention reads, for n sentences.

    Attributes:
        annotations_nSC: x, (n, S, C).
        keys_nSA: 2k, twice the keys, (n, S, A).
        padding_nS: true at padding.
    """

    annotations_nSC: Tensor
    keys_nSA: Tensor
    padding_nS: Tensor


def _hidden_blocks(source: Source, query_BA: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Some sentences, and their u of shape (sentences, B / n, S, A), block by block."""
    keys_n1SA = source.keys_nSA.unsqueeze(1)
    query_nb1A = query_BA.view(len(keys_n1SA), -1, 1, query_BA.size(1))
    per_sentence = query_nb1A[0].numel() * keys_n1SA.size(2)
    sentences = len(keys_n1SA) if keys_n1SA.is_cuda else max(1, BLOCK // per_sentence)
    for first in range(0, len(keys_n1SA), sentences):
        block = slice(first, first + sentences)
        yield block, torch.add(_exact(keys_n1SA[block]), _exact(query_nb1A[block])).sigmoid_()


def _exact(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def attend(source: Source, query_BA: Tensor, vector_A: Tensor) -> tuple[Tensor, Tensor]:
    """Attends from every row of the decoder.

    Args:
        source: what is attended to.
        query_BA: 2q, the beams of a sentence side by side.
        vector_A: v.

    Returns:
        Weights a (B, S), zero at padding, and contexts (B, C). The bias c changes neither.
    """
    sentences, length, width = source.keys_nSA.shape
    twice_vector = _exact(vector_A) * 2
    energies = twice_vector.new_empty(sentences, len(query_BA) // sentences, length)
    for block, hidden in _hidden_blocks(source, query_BA):
        torch.mv(hidden.view(-1, width), twice_vector, out=energies[block].view(-1))
    # Not -inf, of which a sentence of padding alone, an empty line, would make NaN.
    energies.masked_fill_(source.padding_nS.unsqueeze(1), torch.finfo(energies.dtype).min)
    weights = torch.softmax(energies, -1).to(query_BA.dtype)
    contexts = torch.bmm(weights, source.annotations_nSC)
    return weights.flatten(0, 1), contexts.flatten(0, 1)


class AttentionGradients:
    """Gradients of ``attend`` with one row a sentence, gathered over the steps of a decoder.

    The hidden layer u is computed again rather than kept, since it has T x B x S x A numbers. With g = d loss / d e,
    which sums to zero over a sentence as every softmax gradient does, so that constants fall out here too:

        d 2q   = 2 v * sum_j g_j (u_j - u_j^2)
        d 2k_j = 2 v * sum_steps g_j (u_j - u_j^2)
        d v    = 2 sum_steps sum_j g_j u_j
    """

    def __init__(self, source: Source, vector_A: Tensor):
        self._source, self._twice_vector_A = source, _exact(vector_A) * 2
        self._grad_vector_A = torch.zeros_like(self._twice_vector_A)
        self._grad_keys_BSA = torch.zeros_like(_exact(source.keys_nSA))

    def step(self, query_BA: Tensor, weights_BS: Tensor, grad_contexts_BC: Tensor) -> Tensor:
        """Adds one step; returns the gradient of its 2q (B, A)."""
        grad_weights = torch.bmm(self._source.annotations_nSC, grad_contexts_BC.unsqueeze(2)).squeeze(2)
        grad_weights, weights_BS = _exact(grad_weights), _exact(weights_BS)
        grad_weights = grad_weights - (grad_weights * weights_BS).sum(1, keepdim=True)
        grad_energies_BS = grad_weights.mul_(weights_BS)
        grad_query_B1A = torch.empty_like(_exact(query_BA)).unsqueeze(1)
        for block, hidden_b1SA in _hidden_blocks(self._source, query_BA):
            hidden, grad_energies = hidden_b1SA.squeeze(1), grad_energies_BS[block]
            self._grad_vector_A += torch.bmm(grad_energies.unsqueeze(1), hidden).sum((0, 1))
            slope = hidden.addcmul_(hidden, hidden, value=-1)
            self._grad_keys_BSA[block].addcmul_(grad_energies.unsqueeze(2), slope)
            torch.bmm(grad_energies.unsqueeze(1), slope, out=grad_query_B1A[block])
        return grad_query_B1A.squeeze(1).mul_(self._twice_vector_A).to(query_BA.dtype)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Gradients of v (A,) and of 2k (B, S, A) over all steps."""
        return self._grad_vector_A.mul_(2), self._grad_keys_BSA.mul_(self._twice_vector_A)
