"""Weight initialisation of DL4MT, the translation system of nyu-dl/dl4mt-tutorial."""

from torch import Tensor, nn

STD = 0.01


def gaussian_or_orthogonal_(weight: Tensor, *, blocks: int = 1) -> None:
    """Fills a weight matrix in place: square blocks orthogonal, other blocks Gaussian N(0, 0.01^2).

    ``weight`` is (``blocks`` * out, in), with blocks stacked like the gates of a recurrent layer.

    Source: nyu-dl/dl4mt-tutorial session2/nmt.py, ``norm_weight`` and ``ortho_weight``.
    """
    for block in weight.detach().chunk(blocks):
        if block.size(0) == block.size(1):
            nn.init.orthogonal_(block)
        else:
            nn.init.normal_(block, std=STD)


def dl4mt_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer with DL4MT's initial weights: bias zero; a square matrix orthogonal."""
    layer = nn.Linear(inputs, outputs)
    gaussian_or_orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
