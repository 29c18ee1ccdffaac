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
    JointSpace,
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
TARGET = torch.tensor([4, 4, 5, 2, 16, 9, 3, 15])


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


@torch.no_grad()
def slope(loss: Callable[[], float], parameter: Tensor, direction: Tensor, step: float = 1e-6) -> float:
    """Of the loss as the parameter moves in a direction, by central differences."""
    kept, values = parameter.clone(), []
    for sign in (1, -1):
        parameter.copy_(kept + sign * step * direction)
        values.append(loss())
    parameter.copy_(kept)
    return (values[0] - values[1]) / (2 * step)


# Every head, from the counts of the training text or None; those of `--output-layer` by its values.
HEADS: dict[str, Callable[[Tensor | None], Any]] = {
    "softmax": lambda counts: table(),
    "classes": lambda counts: ClassBased(table(), counts, MARKS, classes=4).double(),
    "classes, nowhere in a row": lambda counts: ClassBased(
        table(), counts, MARKS, class_of=torch.arange(SIZE) % 4
    ).double(),
    "short-list": lambda counts: ShortList(table(), counts, MARKS, length=5, unknown=3, size=SIZE),
    "tree": lambda counts: grown(Tree(SIZE, WIDTH, counts, MARKS).double(), std=0.5),
    "short-list of its own": lambda counts: ShortList(
        grown(SharedEmbedding(6, WIDTH, None, bias=True).double()), counts, MARKS, length=5, unknown=3, size=SIZE
    ),
    "nce": lambda counts: NoiseContrastive(table(), counts, MARKS, samples=3),
    "nce, own noise": lambda counts: NoiseContrastive(table(), counts, MARKS, samples=3, shared=False),
    "sampled": lambda counts: SampledSoftmax(table(), counts, MARKS, samples=3),
    "mixture": lambda counts: grown(Mixture(table(), 3).double(), std=0.5),
    "joint": lambda counts: grown(JointSpace(table(), 4).double(), std=0.5),
    "adaptive": lambda counts: Bands(grown(AdaptiveSoftmax(SIZE, WIDTH, [5, 9], 0.0, factor=1.0).double())),
    "negative-sampling": lambda counts: NegativeSampling(
        table(), COUNTS if counts is None else counts, negatives=3, power=0.75
    ),
}
