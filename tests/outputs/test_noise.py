"""Noise words: by inversion, whatever the guide holds."""

import pytest
import torch

from fairseq_tiedemb.outputs import noise


@pytest.mark.parametrize("parts", [1, 8, 2**20])
def test_noise_is_the_first_word_whose_sum_is_above_the_point(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where several words share a part of the guide, or all do."""
    monkeypatch.setattr(noise, "PARTS", parts)
    counts = torch.tensor([0, 9, 7, 5, 0, 4, 2, 1, 1, 0])
    found = noise.Noise(counts, 0.75, counts.eq(0))
    for seed in range(3):
        generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
        points = torch.rand((40, 50), dtype=torch.float64, generator=generators[0])
        expected = torch.searchsorted(found.q.cumsum(0), points, right=True)
        assert torch.equal(found.draw((40, 50), generators[1]), expected)
