"""Additive attention (Bahdanau et al. 2015), forward and backward, on plain tensors.

    e_j = v . tanh(q + k_j) + c;   a = softmax(e) over source positions;   context = sum_j a_j x_j

q is the query's projection, k_j = x_j W + b the *key* and x_j the *annotation* of source position j. Keys do not depend
on the decoder, so the encoder computes them once.

The hidden layer of all steps and source positions dominates the cost, and its tanh or sigmoid most of that. Since
tanh(z) = 2 sigmoid(2z) - 1, and the softmax ignores constants, this module computes

    softmax(e) = softmax(2 v . u_j)   with   u_j = sigmoid(2q + 2k_j) = 1 / (1 + e^-2q e^-2k_j)

from ``powers`` of queries and keys: a product and a division an element take less than half of a sigmoid's time. Blocks
of sentences fit a core's cache. All is in float32 or more precise, because the u_j lie near 1/2, where half precision
has few digits. Gradients are those of 2q and 2k; autograd does not differentiate the functions.

The decoder may have several rows per sentence (beams, adjacent in the batch), which share annotations and keys.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..precision import exact, exact_dtype
from ..products import of_vectors

# Elements of the hidden layer computed at a time on a CPU: 1 MiB in float32, which fits a core's cache.
BLOCK = 2**18


class Source(NamedTuple):
    """Inputs of attention for n source sentences."""

    annotations_nSC: Tensor  # x
    keys_nSA: Tensor  # 2k, twice the keys; for the functions of this module their ``powers``
    padding_nS: Tensor  # mask, true at padding


def powers(exponents: Tensor, out: Tensor | None = None) -> Tensor:
    """e^-x, in float32 at least, into ``out``; x beyond +-80 in float32, and +-639 in float64, counts as that."""
    most = 0.9 * math.log(torch.finfo(exact_dtype(exponents)).max)
    return torch.clamp(exact(exponents), -most, most, out=out).neg_().exp_()


def _hidden_blocks(source: Source, query_BA: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yields blocks of sentences with their hidden layer u (sentences, B / n, S, A)."""
    keys_n1SA = source.keys_nSA.unsqueeze(1)
    query_nb1A = query_BA.view(len(keys_n1SA), -1, 1, query_BA.size(1))
    per_sentence = query_nb1A[0].numel() * keys_n1SA.size(2)
    sentences = len(keys_n1SA) if keys_n1SA.is_cuda else max(1, BLOCK // per_sentence)
    shape = (sentences, query_nb1A.size(1), *keys_n1SA.shape[2:])
    hidden, one = keys_n1SA.new_empty(shape), keys_n1SA.new_ones(())  # once, since the system clears new memory
    for first in range(0, len(keys_n1SA), sentences):
        block = slice(first, first + sentences)
        keys = keys_n1SA[block]
        yield block, torch.addcmul(one, keys, query_nb1A[block], out=hidden[: len(keys)]).reciprocal_()


def attend(source: Source, query_BA: Tensor, vector_A: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Attention weights a (B, S), zero at padding, and contexts (B, C) of ``powers`` of 2q, beams adjacent.

    ``vector_A`` is v; ``out`` gets the contexts. The bias c is omitted, because it changes neither.
    """
    sentences, length, width = source.keys_nSA.shape
    twice_vector = exact(vector_A) * 2
    energies = twice_vector.new_empty(sentences, len(query_BA) // sentences, length)
    with of_vectors(twice_vector):
        for block, hidden in _hidden_blocks(source, query_BA):
            torch.mv(hidden.view(-1, width), twice_vector, out=energies[block].view(-1))
    # The smallest number, because -inf would give NaN for a sentence of padding only (an empty line).
    energies.masked_fill_(source.padding_nS.unsqueeze(1), torch.finfo(energies.dtype).min)
    weights = torch.softmax(energies, -1).to(source.annotations_nSC.dtype)
    out = None if out is None else out.view(*weights.shape[:2], -1)
    return weights.flatten(0, 1), torch.bmm(weights, source.annotations_nSC, out=out).flatten(0, 1)


class AttentionGradients:
    """Gradients of ``attend`` with one row per sentence, accumulated over decoder steps.

    The hidden layer u, T x B x S x A numbers, is recomputed instead of stored. g = d loss / d e sums to zero over a
    sentence, as every softmax gradient does, so constants drop out here too:

        d 2q   = 2 v * sum_j g_j (u_j - u_j^2)
        d 2k_j = 2 v * sum_steps g_j (u_j - u_j^2)
        d v    = 2 sum_steps sum_j g_j u_j
    """

    def __init__(self, source: Source, vector_A: Tensor):
        self._source, self._twice_vector_A = source, exact(vector_A) * 2
        self._grad_vector_A = torch.zeros_like(self._twice_vector_A)
        self._grad_keys_BSA = torch.zeros_like(source.keys_nSA)

    def step(self, query_BA: Tensor, weights_BS: Tensor, grad_contexts_BC: Tensor) -> Tensor:
        """Adds a step's gradients; returns the gradient of the step's 2q (B, A)."""
        with of_vectors(query_BA):
            # MKL multiplies a row by a matrix twice as fast as a matrix by a column.
            grad_weights = torch.bmm(grad_contexts_BC.unsqueeze(1), self._source.annotations_nSC.transpose(1, 2))
            grad_weights, weights_BS = exact(grad_weights.squeeze(1)), exact(weights_BS)
            grad_energies_BS = (grad_weights - (grad_weights * weights_BS).sum(1, keepdim=True)).mul_(weights_BS)
            grad_query_B1A = torch.empty_like(query_BA).unsqueeze(1)
            for block, hidden_b1SA in _hidden_blocks(self._source, query_BA):
                hidden, grad_energies = hidden_b1SA.squeeze(1), grad_energies_BS[block]
                self._grad_vector_A.addmv_(hidden.flatten(0, 1).t(), grad_energies.flatten())
                slope = hidden.addcmul_(hidden, hidden, value=-1)
                self._grad_keys_BSA[block].addcmul_(grad_energies.unsqueeze(2), slope)
                torch.bmm(grad_energies.unsqueeze(1), slope, out=grad_query_B1A[block])
            return grad_query_B1A.squeeze(1).mul_(self._twice_vector_A)

    def finish(self) -> tuple[Tensor, Tensor]:
        """Gradients of v (A,) and of 2k (B, S, A), summed over steps."""
        return self._grad_vector_A.mul_(2), self._grad_keys_BSA.mul_(self._twice_vector_A)
