"""Negative sampling learned in small steps: the pairs of a batch see what earlier pairs of the batch changed."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Steps per batch. Step s learns the centres s, s + STEPS, ..., whose windows of fewer than STEPS / 2 words to a side do
# not overlap; with noise of each pair's own, a tenth of the pairs.
STEPS = 10
# For noise per block: feature vectors per block, and the smallest number of noise words.
BLOCK = 8
BLOCK_NOISE = 64
# Hash buckets per noise word: a target is compared with the noise words of its block only where one is in its bucket.
KINDS = 16


def sizes_of_steps(count: int) -> list[int]:
    """Number of consecutive centres in each step, of ``count`` centres in all."""
    return [(count + step) // STEPS for step in reversed(range(STEPS))]


def learn_in_steps(
    inputs_VD: Tensor,
    outputs_VD: Tensor,
    words_n: Tensor,
    target_N: Tensor,
    rows_N: Tensor,
    noise_Gm: Tensor,
    *,
    block_size: int,
    negatives: int,
    rate: float,
) -> Tensor:
    """Changes the tables of skip-gram by ``STEPS`` steps of SGD; returns the loss of the pairs, each before its step.

    Each step is exact SGD on the negative-sampling loss of its pairs. The gradient of a whole batch has another effect.
    All pairs of a rare word stand in one window. Summed at once they lengthen the word's output row, while the input
    rows of the window see the row as it was. Output rows then end too long and input rows too short, by a quarter each
    in a text of 1.4 million words.

    Tables are detached, and tied ones are the same tensor. ``words_n`` are the centres, ``target_N`` the contexts,
    ``rows_N`` the position of each pair's centre, not falling. ``noise_Gm`` are noise words of blocks of B =
    ``block_size`` centres; each step starts a block. ``negatives`` is k. ``backward`` does nothing.

    Raises:
        ValueError: if the loss is not finite.
    """
    noise_weight = noise_Gm.new_tensor(negatives / noise_Gm.size(1), dtype=inputs_VD.dtype)
    blocks, centres_S, words_GW, *factors = _blocks(words_n, target_N, rows_N, noise_Gm, block_size, noise_weight)
    scores_GBW = torch.empty_like(factors[0])
    of_blocks = (centres_S.view(len(words_GW), -1), words_GW, *factors, scores_GBW)
    for step in zip(*(numbers.split(blocks) for numbers in of_blocks), strict=True):
        _step(inputs_VD, outputs_VD, step, rate)
    # `torch.dot` is slow where oneDNN multiplies, which makes a product of it.
    loss = F.softplus(scores_GBW).mul_(factors[0]).sub_(scores_GBW.mul_(factors[1])).sum()
    if not loss.isfinite():
        raise ValueError(f"--lr: needs a rate at which the loss stays finite; got {rate}. Use a lower one.")
    return loss.requires_grad_().clone()  # no leaf, which could not be changed in place


def _blocks(
    words_n: Tensor, target_N: Tensor, rows_N: Tensor, noise_Gm: Tensor, block_size: int, noise_weight: Tensor
) -> tuple[Any, ...]:
    """Blocks of B = ``block_size`` centres i and W words w: m noise words, and the contexts of the block's centres.

        loss = sum_iw weights_iw softplus(s_iw) - own_iw s_iw

    For a context of i, own_iw is 1 and weights_iw is 1 - (k / m) * (noise words equal to w); for a noise word
    weights_iw is (k / m) * (contexts of i). All else is 0. ``noise_weight`` is k / m; the others are those of
    ``learn_in_steps``. Returns the numbers of blocks in the steps, centres (S,), words (G, W), weights and own
    (G, B, W).
    """
    device, (groups, count) = words_n.device, noise_Gm.shape
    sizes = torch.tensor(sizes_of_steps(len(words_n)), device=device)
    blocks = -(sizes // -block_size)
    unused = blocks * block_size - sizes
    slot_n = torch.arange(len(words_n), device=device) + (unused.cumsum(0) - unused).repeat_interleave(sizes)
    centres_S = words_n[:1].repeat(groups * block_size).scatter_(0, slot_n, words_n)
    slot_N = slot_n.index_select(0, rows_N)
    counts_S = torch.bincount(slot_N, minlength=groups * block_size)
    counts_G = counts_S.view(groups, block_size).sum(1)
    block_N, columns = slot_N // block_size, count + int(counts_G.max())
    column_N = torch.arange(len(target_N), device=device)
    column_N += (count + counts_G - counts_G.cumsum(0)).index_select(0, block_N)
    words_GW = noise_Gm[:1, :1].repeat(groups, columns)
    words_GW[:, :count] = noise_Gm
    words_GW.view(-1).scatter_(0, block_N * columns + column_N, target_N)
    weights_SW, own_SW = factors = torch.zeros(2, groups * block_size, columns, dtype=noise_weight.dtype, device=device)
    weights_SW[:, :count] = (counts_S.to(noise_weight.dtype) * noise_weight).unsqueeze(1)
    own_N = slot_N * columns + column_N
    for factor in (weights_SW, own_SW):
        factor.view(-1).scatter_(0, own_N, 1)
    kinds = KINDS * count
    known = torch.zeros(groups * kinds, dtype=torch.bool, device=device)
    known[(noise_Gm % kinds + kinds * torch.arange(groups, device=device).unsqueeze(1)).flatten()] = True
    maybe = known.index_select(0, target_N % kinds + kinds * block_N).nonzero().squeeze(1)
    repeats = noise_Gm.index_select(0, block_N[maybe]).eq(target_N[maybe].unsqueeze(1)).sum(1)
    weights_SW.view(-1)[own_N[maybe]] -= noise_weight * repeats.to(noise_weight.dtype)
    return blocks[blocks > 0].tolist(), centres_S, words_GW, *factors.view(2, groups, block_size, columns)


def _step(inputs: Tensor, outputs: Tensor, blocks: tuple[Tensor, ...], rate: float) -> None:
    """Changes the tables by a step of SGD, and fills in the scores."""
    centres_GB, words_GW, weights_GBW, own_GBW, scores_GBW = blocks
    centres, words = centres_GB.flatten(), words_GW.flatten()
    features_GBD = inputs.index_select(0, centres).view(*centres_GB.shape, -1)
    rows_GWD = outputs.index_select(0, words).view(*words_GW.shape, -1)
    torch.bmm(features_GBD, rows_GWD.transpose(1, 2), out=scores_GBW)
    falls_GBW = torch.addcmul(own_GBW, scores_GBW.sigmoid(), weights_GBW, value=-1)
    # The rate is a factor here, because `index_add_` is slow with one.
    of_features = torch.baddbmm(features_GBD, falls_GBW, rows_GWD, beta=0, alpha=rate)
    rows_GWD.baddbmm_(falls_GBW.transpose(1, 2), features_GBD, beta=0, alpha=rate)
    inputs.index_add_(0, centres, of_features.flatten(0, 1))
    outputs.index_add_(0, words, rows_GWD.flatten(0, 1))
