"""What language models are measured against: fairseq's `lstm_lm`, torch's own LSTM, and a training step's limit."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.lstm import LSTMDecoder
from torch import Tensor, nn

from fairseq_tiedemb.models._stream_lm import StreamLM

from ..models.common import dictionary
from .limits import Work, parameter_bytes

VOCABULARY = 10_000
LAYERS = 2


def text(*shape: int) -> Tensor:
    """Words with Zipf's distribution, in which short losses make sense."""
    weights = 1.0 / torch.arange(1, VOCABULARY - 3)
    return torch.multinomial(weights, shape[0] * shape[1], replacement=True).view(shape) + 4


def build_ours(arch: str, **options: Any) -> StreamLM:
    """One of our models at V = 10,000."""
    config = MODEL_DATACLASS_REGISTRY[arch](**options)
    words = dictionary(VOCABULARY)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    return MODEL_REGISTRY[arch].build_model(config, task)


class FairseqLSTMLM(nn.Module):
    """fairseq's `lstm_lm`, tied, with the weights of ours, and the loss as its `cross_entropy` computes it.

    It has no output bias, which ours are given as zero, and two biases a gate, of which the second is zero here.
    """

    def __init__(self, ours: StreamLM):
        super().__init__()
        size = ours.decoder.stack.hidden_size
        self.decoder = LSTMDecoder(
            ours.decoder.dictionary,
            embed_dim=size,
            hidden_size=size,
            out_embed_dim=size,
            num_layers=LAYERS,
            dropout_in=0.0,
            dropout_out=0.0,
            attention=False,
            encoder_output_units=0,
            share_input_output_embed=True,
        )
        with torch.no_grad():
            nn.init.zeros_(ours.decoder.output.head.bias)
            self.decoder.embed_tokens.weight.copy_(ours.decoder.output.weight)
            for layer, cell in enumerate(self.decoder.layers):
                for name in ("weight_ih", "weight_hh"):
                    getattr(cell, name).copy_(getattr(ours.decoder.stack, name)[layer])
                cell.bias_ih.copy_(ours.decoder.stack.bias[layer])
                nn.init.zeros_(cell.bias_hh)

    def loss(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Cross entropy, summed."""
        log_probabilities = F.log_softmax(self.decoder(tokens_BT)[0], -1, dtype=torch.float32)
        return F.nll_loss(log_probabilities.flatten(0, 1), target_BT.flatten(), ignore_index=1, reduction="sum")


class TorchLSTMLM(nn.Module):
    """The same model as most would write it with torch alone: `nn.LSTM`, tied, with the weights of ours.

    Args:
        ours: whose weights it takes.
        chunked: the loss is `F.linear_cross_entropy` in chunks of 256 words, which never holds all scores; otherwise
            `F.cross_entropy` of `F.linear`.
    """

    def __init__(self, ours: StreamLM, *, chunked: bool):
        super().__init__()
        stack, self.chunked = ours.decoder.stack, chunked
        self.table = nn.Parameter(ours.decoder.output.weight.detach().clone())
        self.bias = nn.Parameter(ours.decoder.output.head.bias.detach().clone())
        self.lstm = nn.LSTM(stack.hidden_size, stack.hidden_size, LAYERS)
        with torch.no_grad():
            for layer in range(LAYERS):
                for name, value in (
                    ("weight_ih", stack.weight_ih),
                    ("weight_hh", stack.weight_hh),
                    ("bias_ih", stack.bias),
                ):
                    getattr(self.lstm, f"{name}_l{layer}").copy_(value[layer])
                nn.init.zeros_(getattr(self.lstm, f"bias_hh_l{layer}"))

    def loss(self, tokens_BT: Tensor, target_BT: Tensor) -> Tensor:
        """Cross entropy, summed."""
        features = self.lstm(F.embedding(tokens_BT.t(), self.table))[0].flatten(0, 1)
        target = target_BT.t().flatten()
        if self.chunked:
            return F.linear_cross_entropy(
                features, self.table, target, linear_bias=self.bias, reduction="sum", options=chunks_of_256()
            )
        return F.cross_entropy(F.linear(features, self.table, self.bias), target, reduction="sum")


# Newer than the oldest torch that the package takes.
HAS_LINEAR_CROSS_ENTROPY = hasattr(F, "linear_cross_entropy")


def chunks_of_256() -> Any:
    """What `F.linear_cross_entropy` is fastest with on a CPU; its own choice is several times slower at 400 words."""
    return nn.LinearCrossEntropyOptions(batch_chunk_size=256)


def step_work(parameters: int, size: int, bsz: int, steps: int) -> Work:
    """What a training step with clipping and SGD has to do: 6 FLOP a weight and a word.

    The first state is zero, so that recurrent weights have one time step less.

    Args:
        parameters: how many the model has.
        size: of embedding and hidden layer.
        bsz: rows.
        steps: words of a row.
    """
    recurrent = LAYERS * 4 * size * size
    flops = 6 * bsz * (steps * (recurrent + VOCABULARY * size) + (steps - 1) * recurrent)
    return Work(flops, parameter_bytes(parameters, update=True))
