"""Hidden layers of a feed-forward language model, from the context's embeddings to features."""

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class FeedForwardStack(nn.Module):
    """Fully connected layers over the context's concatenated embeddings x.

        a_1 = f(d_1 + H_1 x);    a_l = f(d_l + H_l a_{l-1});    features a_L, or [a_L; x] with skip connections

    With [a; x], an output table [U W] gives Bengio et al.'s b + U a + W x, a projection [P Q] the deep c + P a + Q x.
    L is 1 or more, 1 in the papers; f is a name in ``ACTIVATIONS``. ``dropout_in`` is of x, for the layers and the skip
    connection, ``dropout_out`` of every a.

    Source: Bengio et al. 2003, section 2 (tanh, one layer, skip connections); Vaswani et al. 2013, section 2 (ReLU).
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        activation: str,
        skip: bool,
        dropout_in: nn.Module,
        dropout_out: nn.Module,
    ):
        super().__init__()
        widths = [input_size, *[hidden_size] * num_layers]
        self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
        self.activation = ACTIVATIONS[activation]()
        self.skip = skip
        self.dropout_in = dropout_in
        self.dropout_out = dropout_out
        self.output_size = hidden_size + (input_size if skip else 0)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (*, output_size) of contexts (*, input_size)."""
        hidden = inputs = self.dropout_in(inputs)
        for layer in self.layers:
            hidden = self.dropout_out(self.activation(layer(hidden)))
        return torch.cat((hidden, inputs), -1) if self.skip else hidden
