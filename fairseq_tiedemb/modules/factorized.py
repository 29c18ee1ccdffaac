"""Factorised embeddings: a table of narrow rows, and a projection between them and the model's width."""

from torch import Tensor, nn

from ..embedding import SharedEmbedding


class FactorizedInput(nn.Module):
    """Vectors P s_v(w_v) of a table (V, R) and a projection P (D, R): V R + R D parameters instead of V D.

    A sharing method sees the narrow rows: s_v is its scale of input vectors. The way back, from features to the narrow
    rows, is the output layer's factor.

    Args:
        table: the narrow table.
        embedding_dim: D.

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
        """Tokens of any shape -> (*, D)."""
        return self.projection(self.table(tokens))


def narrowing(features_dim: int, rank: int) -> nn.Linear:
    """The projection Q (R, D) from features to a narrow table, which keeps the spread of their elements."""
    return gaussian_linear(features_dim, rank, std=features_dim**-0.5)


def gaussian_linear(inputs: int, outputs: int, *, std: float, bias: bool = False) -> nn.Linear:
    """A linear layer with Gaussian weights and a bias that starts at 0.

    With D^-0.5, vectors keep the norm 1 of their rows and features the spread of their elements.
    """
    projection = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(projection.weight, std=std)
    if bias:
        nn.init.zeros_(projection.bias)
    return projection
