"""Factorised embeddings: a table of narrow rows, and a projection between them and the model's width."""

from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..output_loss import OutputLoss
from .output_layer import OutputTable, TiedOutput


class FactorizedInput(nn.Module):
    """Vectors P s_v(w_v) of a table (V, R) and a projection P (D, R): V R + R D parameters instead of V D.

    A sharing method sees the narrow rows: s_v is its scale of input vectors.

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
        self.projection = _projection(table.embedding_dim, embedding_dim, std=embedding_dim**-0.5)

    @property
    def weight(self) -> Tensor:
        """The narrow table (V, R)."""
        return self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of any shape -> (*, D)."""
        return self.projection(self.table(tokens))


class FactorizedOutput(nn.Module):
    """Scores of a narrow table: scores(Q h), with a projection Q (R, D) of the output's own, as ALBERT has it.

    Args:
        layer: scores of the narrow table, (*, R) -> (*, V).
        features_dim: D.

    Source: as ``FactorizedInput``.
    """

    def __init__(self, layer: TiedOutput | OutputTable, features_dim: int):
        super().__init__()
        self.layer = layer
        self.projection = _projection(features_dim, layer.weight.size(1), std=features_dim**-0.5)

    @property
    def weight(self) -> Tensor:
        """The narrow table (V, R)."""
        return self.layer.weight

    def forward(self, features: Tensor) -> Tensor:
        """(*, D) -> (*, V)."""
        return self.layer(self.projection(features))

    def loss(self, features_ND: Tensor, target_N: Tensor, **options: float) -> OutputLoss:
        """``SharedEmbedding.loss`` of the projected features."""
        return self.layer.loss(self.projection(features_ND), target_N, **options)


def _projection(inputs: int, outputs: int, *, std: float) -> nn.Linear:
    """Without a bias. With D^-0.5, vectors keep the norm 1 of their rows and features the spread of their elements."""
    projection = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(projection.weight, std=std)
    return projection
