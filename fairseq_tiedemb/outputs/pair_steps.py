"""Negative sampling learned in small steps: the pairs of a batch see what earlier pairs of the batch changed."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..sparse_rows import distinct, sparse_rows

# Steps per batch. Step s learns the centres s, s + STEPS, ..., whose windows of up to STEPS / 2 words do not overlap.
STEPS = 10
# For noise per block: feature vectors per block, and the smallest number of noise words.
BLOCK = 8
BLOCK_NOISE = 64


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
        noise_places = noise_places.view(noise_Gm.shape)
        weight = negatives / noise_Gm.size(1)
        parts = _parts(input_places, target_places, rows_N, noise_places, weight, inputs_VD.dtype)
        scores = [_step(rows[0].now, rows[-1].now, part, rate) for part in parts]
        ctx.rows, ctx.rate = rows, rate
        return _loss(parts, scores)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [each.gradient(factor / ctx.rate) for each in ctx.rows]
        return *gradients, *[None] * (8 - len(gradients))


class _Rows:
    """A copy of the rows of some words, to be changed."""

    def __init__(self, table: Tensor, words: Tensor):
        self.shape = table.shape
        self.words, self.places = distinct(words, len(table))
        self.before = table.index_select(0, self.words)
        self.now = self.before.clone()

    def gradient(self, factor: Tensor) -> Tensor:
        return sparse_rows(self.words, (self.before - self.now).mul_(factor), self.shape)


class _Part(NamedTuple):
    """The pairs of one step. Each block has ``BLOCK`` slots for centres; the last slots of a step may have no pairs."""

    centres_S: Tensor
    firsts_S: Tensor  # number of pairs before
    weights_S: Tensor  # number of pairs, times that of a noise word, k / m
    targets_N: Tensor
    slots_N: Tensor
    repeats_N: Tensor  # weight of the noise words equal to the target
    noise_Gm: Tensor


def _parts(
    centres_n: Tensor, targets_N: Tensor, rows_N: Tensor, noise_Gm: Tensor, weight: float, dtype: torch.dtype
) -> list[_Part]:
    """The steps of a batch; arguments are those of ``PairSteps.forward``, with places of rows for words."""
    sizes = torch.tensor(sizes_of_steps(len(centres_n)), device=rows_N.device)
    blocks = -(sizes // -BLOCK)
    slots = blocks * BLOCK
    # Slots are counted in the step, and in the batch.
    slot_n = torch.arange(len(centres_n), device=rows_N.device) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    of_batch_n = slot_n + (slots.cumsum(0) - slots).repeat_interleave(sizes)
    centres_S, counts_S = centres_n.new_zeros(2, len(noise_Gm) * BLOCK)
    centres_S[of_batch_n] = centres_n
    counts_S[of_batch_n] = torch.bincount(rows_N, minlength=len(centres_n))
    repeats_N = _repeats(noise_Gm, (of_batch_n // BLOCK).index_select(0, rows_N), targets_N).to(dtype).mul_(weight)
    steps, weights_S = slots.tolist(), counts_S.to(dtype).mul_(weight)
    counts = counts_S.split(steps)
    of_slots = centres_S.split(steps), [part.cumsum(0) - part for part in counts], weights_S.split(steps)
    pairs = [int(part.sum()) for part in counts]
    of_pairs = (each.split(pairs) for each in (targets_N, slot_n.index_select(0, rows_N), repeats_N))
    return list(map(_Part, *of_slots, *of_pairs, noise_Gm.split(blocks.tolist())))


def _repeats(noise_Gm: Tensor, blocks_N: Tensor, targets_N: Tensor) -> Tensor:
    """How often each target is among the noise words of its block. Only words with equal last bits are compared."""
    kinds, groups = 1024, torch.arange(len(noise_Gm), device=noise_Gm.device).unsqueeze(1)
    known = torch.zeros(len(noise_Gm) * kinds, dtype=torch.bool, device=noise_Gm.device)
    known[((noise_Gm & kinds - 1) + groups * kinds).flatten()] = True
    maybe = known.index_select(0, (targets_N & kinds - 1) + blocks_N * kinds).nonzero().squeeze(1)
    noise = noise_Gm.index_select(0, blocks_N.index_select(0, maybe))
    return torch.zeros_like(targets_N).index_copy_(0, maybe, noise.eq(targets_N[maybe].unsqueeze(1)).sum(1))


def _step(inputs: Tensor, outputs: Tensor, part: _Part, rate: float) -> tuple[Tensor, Tensor]:
    """Changes the rows by one step of SGD; the scores before it, of targets (N,) and noise (G, BLOCK, m)."""
    features_SD, target_rows = inputs.index_select(0, part.centres_S), outputs.index_select(0, part.targets_N)
    features_GBD = features_SD.view(len(part.noise_Gm), BLOCK, inputs.size(1))
    of_pairs = features_SD.index_select(0, part.slots_N)
    scores_N = torch.linalg.vecdot(target_rows, of_pairs)
    noise_m = part.noise_Gm.flatten()
    noise_rows = outputs.index_select(0, noise_m).view(*part.noise_Gm.shape, inputs.size(1))
    scores_GBm = torch.bmm(features_GBD, noise_rows.transpose(1, 2))
    # Changes are -rate times the gradients: `index_add_` is slow with a factor.
    changes_N = scores_N.sigmoid().mul_(1 - part.repeats_N).sub_(1).mul_(-rate)
    changes_GBm = scores_GBm.sigmoid().mul_(part.weights_S.view(len(part.noise_Gm), BLOCK, 1) * -rate)
    of_features = F.embedding_bag(part.targets_N, outputs, part.firsts_S, mode="sum", per_sample_weights=changes_N)
    of_features = torch.baddbmm(of_features.view_as(features_GBD), changes_GBm, noise_rows)
    of_noise = torch.bmm(changes_GBm.transpose(1, 2), features_GBD)
    outputs.index_add_(0, part.targets_N, of_pairs.mul_(changes_N.unsqueeze(1)))
    outputs.index_add_(0, noise_m, of_noise.flatten(0, 1))
    inputs.index_add_(0, part.centres_S, of_features.flatten(0, 1))
    return scores_N, scores_GBm


def _loss(parts: list[_Part], scores: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The summed loss. Noise equal to the target is subtracted again; its score is the target's."""
    scores_N, scores_GBm = map(torch.cat, zip(*scores, strict=True))
    repeats_N, weights_S = (torch.cat([getattr(part, name) for part in parts]) for name in ("repeats_N", "weights_S"))
    right_N = F.softplus(-scores_N)
    of_noise = torch.dot(F.softplus(scores_GBm).sum(2).flatten(), weights_S)
    return right_N.sum() + of_noise - torch.dot(repeats_N, right_N + scores_N)
