"""What language models are measured against: fairseq's `lstm_lm`, and the bare matrix products of a training step."""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.lstm import LSTMDecoder
from torch import Tensor, nn

from fairseq_tiedemb.models._recurrent_lm import RecurrentLM

from ..models.common import dictionary

VOCABULARY = 10_000
LAYERS = 2


def build_ours(arch: str, **options: Any) -> RecurrentLM:
    """One of our models at V = 10,000."""
    config = MODEL_DATACLASS_REGISTRY[arch](**options)
    task = SimpleNamespace(target_dictionary=dictionary(VOCABULARY))
    return MODEL_REGISTRY[arch].build_model(config, task)


class FairseqLSTMLM(nn.Module):
    """fairseq's `lstm_lm`, tied, with the weights of ours, and the loss as its `cross_entropy` computes it.

    It has no output bias, which ours are given as zero, and two biases a gate, of which the second is zero here.
    """

    def __init__(self, ours: RecurrentLM):
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


class BareProducts:
    """The matrix products of a training step and nothing else, every operand laid out as it is fastest.

    Inputs, recurrence and output, forward; the same for the gradients of their inputs and of their weights, the latter
    over all steps at once.
    """

    def __init__(self, size: int, bsz: int, steps: int):
        tokens = bsz * steps
        self.steps = steps
        self.batch = torch.randn(tokens, size)
        self.gates = torch.randn(tokens, 4 * size)
        self.step_state, self.step_gates = torch.randn(bsz, size), torch.randn(bsz, 4 * size)
        self.weight, self.transposed = torch.randn(4 * size, size), torch.randn(size, 4 * size)
        self.table, self.scores = torch.randn(VOCABULARY, size), torch.randn(tokens, VOCABULARY)
        self.flops = 3 * 2 * tokens * (LAYERS * 8 * size * size + VOCABULARY * size)

    def __call__(self) -> None:
        for _ in range(LAYERS):
            self.batch @ self.weight.t()
            for _ in range(self.steps):
                self.step_state @ self.transposed
                self.step_gates @ self.weight
            self.gates @ self.weight
            self.gates.t() @ self.batch  # of the input's weight
            self.gates.t() @ self.batch  # of the recurrent one
        self.batch @ self.table.t()
        self.scores @ self.table
        self.scores.t() @ self.batch
