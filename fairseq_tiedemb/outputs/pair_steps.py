"""Negative sampling learned in small steps: the pairs of a batch see what earlier pairs of the batch changed."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

# Steps per batch. Step s learns the centres s, s + STEPS, ..., whose windows of up to STEPS / 2 words do not overlap.
STEPS = 10
# For noise per block: feature vectors per block, and the smallest number of noise words.
BLOCK = 8
BLOCK_NOISE = 64


def distinct(words: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Distinct words in rising order, and each word's position among them; linear, where ``torch.unique`` sorts."""
    found = torch.bincount(words, minlength=size).nonzero().squeeze(1)
    place = words.new_empty(size)
    place[found] = torch.arange(len(found), device=words.device)
    return found, place[words]


def sizes_of_steps(count: int) -> list[int]:
    """Number of consecutive centres in each step, of ``count`` centres in all."""
    return [(count + step) // STEPS for step in reversed(range(STEPS))]


class PairSteps(torch.autograd.Function):
    """The loss of skip-gram with plain tables, and as gradient the change that ``STEPS`` steps of SGD make.

    Each step is exact SGD on the negative-sampling loss of its pairs. The gradient of a table is (before - after) /
    rate for the rows of the batch, so SGD with this rate makes the change.

    The gradient of a whole batch has another effect. All pairs of a rare word stand in one window. Summed at once they
    lengthen the word's output row, while the input rows of the window see the row as it was. Output rows then end too
    long and input rows too short, by a quarter each in a text of 1.4 million words.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs_VD: Tensor,
        outputs_VD: Tensor | None,
        words_n: Tensor,
        target_N: Tensor,
        rows_N: Tensor,
        noise_Gm: Tensor,
        negatives: int,
        rate: float,
    ) -> Tensor:
        """The summed loss of the pairs, each before its step.

        Args:
            ctx: autograd's.
            inputs_VD: input table.
            outputs_VD: output table; None for a tied one.
            words_n: centres.
            target_N: contexts.
            rows_N: position of each pair's centre, not falling.
            noise_Gm: noise words of blocks of ``BLOCK`` centres; each step starts a block.
            negatives: k.
            rate: learning rate.
        """
        count, pairs = len(words_n), len(target_N)
        words_out = torch.cat((target_N, noise_Gm.flatten()))
        if outputs_VD is None:
            rows = [_Rows(inputs_VD, torch.cat((words_n, words_out)))]
            input_places, output_places = rows[0].places.split((count, len(words_out)))
        else:
            rows = [_Rows(inputs_VD, words_n), _Rows(outputs_VD, words_out)]
            input_places, output_places = (each.places for each in rows)
        target_places, noise_places = output_places.split((pairs, noise_Gm.numel()))
        loss = inputs_VD.new_zeros(())
        pair = block = centre = 0
        firsts = torch.tensor(sizes_of_steps(count)).cumsum(0)
        last_pairs = torch.searchsorted(rows_N, firsts.to(rows_N.device)).tolist()
        for last_centre, last_pair in zip(firsts.tolist(), last_pairs, strict=True):
            last_block = block + -(-(last_centre - centre) // BLOCK)
            loss += _step(
                rows[0].now,
                rows[-1].now,
                input_places[centre:last_centre],
                target_places[pair:last_pair],
                rows_N[pair:last_pair] - centre,
                noise_places.view(noise_Gm.shape)[block:last_block],
                negatives / noise_Gm.size(1),
                rate,
            )
            centre, pair, block = last_centre, last_pair, last_block
        ctx.gradients = [each.gradient(rate) for each in rows] + [None] * (2 - len(rows))
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [None if gradient is None else gradient * factor for gradient in ctx.gradients]
        return *gradients, *[None] * 6


class _Rows:
    """A copy of the rows of some words, to be changed."""

    def __init__(self, table: Tensor, words: Tensor):
        self.shape = table.shape
        self.words, self.places = distinct(words, len(table))
        self.before = table.index_select(0, self.words)
        self.now = self.before.clone()

    def gradient(self, rate: float) -> Tensor:
        rows, words = self.before.sub_(self.now).div_(rate), self.words.unsqueeze(0)
        return torch.sparse_coo_tensor(words, rows, self.shape, is_coalesced=True, check_invariants=False)


def _step(
    inputs: Tensor,
    outputs: Tensor,
    centres_n: Tensor,
    targets_N: Tensor,
    rows_N: Tensor,
    noise_Gm: Tensor,
    weight: float,
    rate: float,
) -> Tensor:
    """Changes the rows by one step of SGD; the loss before it. ``weight`` is that of a noise word, k / m."""
    blocks, padding = len(noise_Gm), len(noise_Gm) * BLOCK - len(centres_n)
    features_nD, target_rows = inputs.index_select(0, centres_n), outputs.index_select(0, targets_N)
    of_pairs = features_nD.index_select(0, rows_N)
    scores_N = (target_rows * of_pairs).sum(1)
    features_GBD = F.pad(features_nD, (0, 0, 0, padding)).view(blocks, BLOCK, features_nD.size(1))
    noise_rows = outputs.index_select(0, noise_Gm.flatten()).view(*noise_Gm.shape, features_nD.size(1))
    noise_scores = torch.bmm(noise_rows, features_GBD.transpose(1, 2))
    counts = torch.bincount(rows_N, minlength=blocks * BLOCK).to(features_nD) * weight
    counts_G1B = counts.view(blocks, 1, BLOCK)
    # Noise equal to the target is subtracted again; its logit is the target's.
    repeats_N = noise_Gm.index_select(0, rows_N // BLOCK).eq(targets_N.unsqueeze(1)).sum(1).to(scores_N) * weight
    loss = F.softplus(-scores_N).sum() - torch.dot(repeats_N, F.softplus(scores_N))
    loss += (F.softplus(noise_scores).sum(1, keepdim=True) * counts_G1B).sum()
    errors_N1 = (scores_N.sigmoid() * (1 - repeats_N) - 1).unsqueeze(1)
    errors_GmB = noise_scores.sigmoid_().mul_(counts_G1B)
    of_features = torch.bmm(errors_GmB.transpose(1, 2), noise_rows).flatten(0, 1)[: len(centres_n)]
    of_features = of_features.index_add(0, rows_N, target_rows.mul_(errors_N1))
    of_noise = torch.bmm(errors_GmB, features_GBD).flatten(0, 1)
    outputs.index_add_(0, targets_N, of_pairs.mul_(errors_N1), alpha=-rate)
    outputs.index_add_(0, noise_Gm.flatten(), of_noise, alpha=-rate)
    inputs.index_add_(0, centres_n, of_features, alpha=-rate)
    return loss
