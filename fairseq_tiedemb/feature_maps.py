"""Feature maps of sharing methods: modules between features and table, (*, D) -> (*, D)."""

import torch
from torch import Tensor, nn


class ScaleNorm(nn.Module):
    """Features of one learned length, g h / ||h||, where g starts at sqrt(D).

    Source: Nguyen & Salazar 2019.
    """

    def __init__(self, width: int):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(width**0.5))

    def forward(self, features: Tensor) -> Tensor:
        # A float16 norm would overflow.
        exact = features.to(torch.promote_types(features.dtype, torch.float32))
        return (self.g * nn.functional.normalize(exact, dim=-1)).to(features.dtype)


class HalfSwap(nn.Module):
    """Features whose halves change places; of an odd width, the last D // 2 features come first.

    Source: Su 2023.
    """

    def __init__(self, width: int):
        super().__init__()
        self.places = width // 2

    def forward(self, features: Tensor) -> Tensor:
        return features.roll(self.places, -1)
