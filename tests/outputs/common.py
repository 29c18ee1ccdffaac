"""Small heads for the tests of output layers, in float64."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules import AdaptiveSoftmax
from torch import Tensor

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.outputs import (
    Bands,
    ClassBased,
    Mixture,
    NegativeSampling,
    NoiseContrastive,
    SampledSoftmax,
    ShortList,
    Tree,
)

from ..models.common import grown

SIZE, WIDTH, MARKS = 17, 6, (0, 1)
# The marks do not occur, and one word occurs in no text of the training.
COUNTS = torch.tensor([0, 0, 9, 4, 30, 21, 16, 12, 10, 8, 7, 5, 4, 3, 2, 1, 0])
TARGET = torch.tensor([4, 4, 5, 2, 16, 7, 3, 15])


def table(method: str = "plain") -> SharedEmbedding:
    """A table with a bias, in float64, whose numbers are large enough to matter."""
    return grown(SharedEmbedding(SIZE, WIDTH, 1, method=method, bias=True).double(), std=0.5)


def features(count: int = len(TARGET)) -> Tensor:
    """Random features (count, D) that want a gradient."""
    return torch.randn(count, WIDTH, dtype=torch.float64).requires_grad_()


def gradients(loss: Tensor, *inputs: Any) -> list[Tensor]:
    """Of parameters and tensors, in their order."""
    wanted = [each for one in inputs for each in ([one] if isinstance(one, Tensor) else one.parameters())]
    return list(torch.autograd.grad(loss, wanted))


def numerical_gradient(loss: Callable[[], float], parameter: Tensor, step: float = 1e-6) -> Tensor:
    """By central differences, one number at a time."""
    found = torch.zeros_like(parameter)
    flat, result = parameter.data.view(-1), found.view(-1)
    for index in range(len(flat)):
        kept = flat[index].item()
        values = []
        for sign in (1, -1):
            flat[index] = kept + sign * step
            values.append(loss())
        flat[index] = kept
        result[index] = (values[0] - values[1]) / (2 * step)
    return found


# Every head, from the counts of the training text or None; those of `--output-layer` by its values.
HEADS: dict[str, Callable[[Tensor | None], Any]] = {
    "softmax": lambda counts: table(),
    "classes": lambda counts: ClassBased(table(), counts, MARKS, classes=4).double(),
    "short-list": lambda counts: ShortList(table(), counts, MARKS, length=5, unknown=3, size=SIZE),
    "tree": lambda counts: grown(Tree(SIZE, WIDTH, counts, MARKS).double(), std=0.5),
    "nce": lambda counts: NoiseContrastive(table(), counts, MARKS, samples=3),
    "nce, own noise": lambda counts: NoiseContrastive(table(), counts, MARKS, samples=3, shared=False),
    "sampled": lambda counts: SampledSoftmax(table(), counts, MARKS, samples=3),
    "mixture": lambda counts: grown(Mixture(table(), 3).double(), std=0.5),
    "adaptive": lambda counts: Bands(grown(AdaptiveSoftmax(SIZE, WIDTH, [5, 9], 0.0, factor=1.0).double())),
    "negative-sampling": lambda counts: NegativeSampling(
        table(), COUNTS if counts is None else counts, negatives=3, power=0.75
    ),
}
