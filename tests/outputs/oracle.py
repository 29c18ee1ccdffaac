"""What the tests of output layers share: sharing methods restated in torch, on float64, importing nothing of ours."""

import torch
from torch import Tensor

from .. import reference

PAD = 1


def scores(method: str, table: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """Scores (N, V) of every word, differentiable (Liu et al. 2020); the padding row counts as of norm 1."""
    norm = table.norm(dim=1)
    norm = torch.where(torch.arange(len(table)) == PAD, 1.0, norm)
    return reference.SCORES[method](features @ table.T, norm) + bias
