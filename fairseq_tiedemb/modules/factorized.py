"""Factorised embeddings: a narrow table, and a projection between its width and the model's width."""

from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..kept import Keeping
from ..products import packed, product


class FactorizedInput(nn.Module):
    """Factorised input embedding: a narrow table (V, R), then a projection P (D, R) to the model's width D.

    The vector of token v is P s_v(w_v), with V R + R D parameters instead of V D. s_v is the sharing method's input
    scale, which sees the narrow rows. The output layer's factor maps features back to the narrow width.

    Source: Lan et al. 2020 (ALBERT), section 3.1, factorized embedding parameterization.
    """

    def __init__(self, table: SharedEmbedding, embedding_dim: int):
        super().__init__()
        self.table = table
        self.embedding_dim = embedding_dim
        self.padding_idx = table.padding_idx
        self.projection = gaussian_linear(table.embedding_dim, embedding_dim, std=embedding_dim**-0.5)

    @property
    def weight(self) -> Tensor:
        """The narrow table (V, R)."""
        return self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Looks up vectors: tokens of any shape (*) -> (*, D)."""
        return self.projection(self.table(tokens))


class PackedLinear(Keeping, nn.Linear):
    """A linear layer that keeps its weight packed while it decodes."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs (*, I) -> (*, O)."""
        weight = self.kept(lambda keeps: packed(self.weight) if keeps else self.weight, [self.weight])
        return product(inputs, weight, self.bias)


def gaussian_linear(inputs: int, outputs: int, *, std: float | None = None, bias: bool = False) -> nn.Linear:
    """A linear layer with Gaussian weights and a bias of 0.

    By default features keep the standard deviation of their elements; with ``std`` D^-0.5, rows keep a norm of 1.
    """
    projection = PackedLinear(inputs, outputs, bias=bias)
    nn.init.normal_(projection.weight, std=inputs**-0.5 if std is None else std)
    if bias:
        nn.init.zeros_(projection.bias)
    return projection
