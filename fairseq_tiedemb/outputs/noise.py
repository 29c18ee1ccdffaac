"""Words drawn at random, by which heads are trained instead of by all words."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .counted import unigram

PARTS = 2**20


class Noise:
    """Words drawn with replacement from q_v = max(c_v, 1)^power / sum_u max(c_u, 1)^power.

    Drawing is by inversion; ``torch.multinomial`` takes time linear in V and at most 2^24 words. On a CPU a guide of
    equal parts of [0, 1) holds the word of each part that one word fills, and other points take logarithmic time.
    ``never`` masks the words that are never drawn (V,); ``q`` (V,) is float64.
    """

    def __init__(self, counts: Tensor, power: float, never: Tensor):
        q = unigram(counts, power).masked_fill(never, 0.0)
        sums = q.cumsum(0)
        self.q, self._cumulated = q / sums[-1], sums / sums[-1]
        ends = torch.searchsorted(self._cumulated, torch.arange(PARTS + 1, device=q.device).to(q) / PARTS, right=True)
        self._guide = ends[1:].where(ends[1:] == ends[:-1], -1).int()

    def draw(self, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
        """Noise words of this shape, by a generator on the CPU or, for None, torch's own of the counts' device."""
        device = self.q.device
        drawn_on = device if generator is None else generator.device
        points = torch.rand(tuple(shape), dtype=self.q.dtype, generator=generator, device=drawn_on)
        # The first sum above the point, which is never that of a word of probability 0.
        if device.type != "cpu":
            return torch.searchsorted(self._cumulated, points.to(device), right=True)
        words = self._guide.take(points.mul(PARTS).long()).long()
        unsure = words.view(-1).lt(0).nonzero().squeeze(1)
        return words.put_(unsure, torch.searchsorted(self._cumulated, points.take(unsure), right=True))
