"""What the tests of all models share: a dictionary, a batch of sentences, and weights that matter."""

from pathlib import Path
from typing import TypeVar

import torch
from fairseq.data import Dictionary
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def dictionary(size: int, prefix: str = "word") -> Dictionary:
    """A dictionary of ``size`` rows, fairseq's four symbols among them."""
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(f"{prefix}{index}")
    return words


class Sized(Dictionary):
    """A dictionary of so many rows without its entries; 10,002: those of PTB, <s> and <pad>."""

    def __init__(self, size: int = 10_002):
        super().__init__()
        self.size = size

    def __len__(self) -> int:
        return self.size


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


PAD = Dictionary().pad()
SOURCE = torch.tensor([[1, 1, 5, 6, 2], [7, 8, 9, 10, 2], [1, 4, 11, 12, 2]])  # padded on the left, as fairseq does
LENGTHS = SOURCE.ne(PAD).sum(1)
PREVIOUS = torch.tensor([[2, 4, 5, 6], [2, 9, 8, 1], [2, 7, 7, 7]])
TARGET = torch.tensor([[4, 5, 6, 2], [9, 8, 2, 1], [7, 7, 7, 2]])


def grown(model: Model, std: float = 0.7) -> Model:
    """Weights large enough that every part of the model matters, and rows of different norms."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model


def assert_gradients_are_finite(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if not name.endswith("conv_bias"):  # which fairseq makes, and does not use
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


def write_vectors(path: Path, width: int) -> str:
    """Vectors of 0.5 for the first word and for one that no dictionary has."""
    path.write_text(f"2 {width}\n" + "".join(f"{word} {' '.join(['0.5'] * width)}\n" for word in ("word0", "other")))
    return str(path)
