"""Heads that are trained by noise words instead of by all words, and how the noise is drawn."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..embedding import SharedEmbedding
from .counted import CountedHead, unigram


class Noise:
    """Words drawn with replacement from q_v = max(c_v, 1)^power / sum_u max(c_u, 1)^power.

    Drawing is by inversion, in logarithmic time a word; ``torch.multinomial`` takes time linear in V and at most 2^24
    words.

    Args:
        counts: c (V,).
        power: of the counts.
        never: mask of the words that are never drawn (V,).

    Attributes:
        q: probabilities of the words (V,), float64.
    """

    def __init__(self, counts: Tensor, power: float, never: Tensor):
        q = unigram(counts, power).masked_fill(never, 0.0)
        sums = q.cumsum(0)
        self.q, self._cumulated = q / sums[-1], sums / sums[-1]

    def draw(self, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
        """Noise words of this shape.

        Args:
            shape: of the result.
            generator: on the CPU; None for torch's own of the counts' device.
        """
        device = self.q.device
        points = torch.rand(
            tuple(shape), dtype=self.q.dtype, generator=generator, device=device if generator is None else "cpu"
        )
        # The first sum above the point, which is never that of a word of probability 0.
        return torch.searchsorted(self._cumulated, points.to(device), right=True)


class NoiseHead(CountedHead):
    """A head over a table that is trained by k noise words for each target word.

    Args:
        table, counts, marks: see ``CountedHead``.
        samples: k.
        power: exponent of the counts in the noise distribution q.
    """

    def __init__(
        self, table: SharedEmbedding, counts: Tensor | None, marks: Sequence[int], *, samples: int, power: float
    ):
        super().__init__(table, counts, marks)
        self.samples, self.power = samples, power
        # A buffer would lose q's precision in `.half()`.
        self._noise: Noise | None = None

    def prepare(self) -> None:
        """Forgets q, which is made anew when it is needed."""
        self._noise = None

    def undrawn(self) -> Tensor:
        """Mask of the words that are no noise (V,)."""
        return self.never()

    @property
    def noise(self) -> Noise:
        """q, made when it is needed."""
        if self._noise is None or self._noise.q.device != self.counts.device:
            self._noise = Noise(self.counts, self.power, self.undrawn())
        return self._noise
