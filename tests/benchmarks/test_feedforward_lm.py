"""Feed-forward language models beside a plain module: a training step, and evaluation without gradients.

The plain module embeds the text once, unfolds windows and takes `F.cross_entropy` of the scores, as most would do it.
What is asked of ours, tied and untied, at V = 10,000, n = 5, m = 100, h = 200, 200 x 5 words: no slower, and as exact.
"""

import statistics
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .interleave import interleave, ratio
from .language_model_peers import VOCABULARY, build_ours
from .test_language_models import text

ORDER, ROWS, STEPS = 5, 200, 5


class PlainFeedForward(nn.Module):
    """Embedding, windows, two linear layers, scores; with the weights of ours."""

    def __init__(self, ours: Any):
        super().__init__()
        decoder, tied = ours.decoder, ours.output.head is ours.decoder.embed_tokens
        self.embedding = nn.Parameter(decoder.embed_tokens.weight.detach().clone())
        self.table = self.embedding if tied else nn.Parameter(ours.output.weight.detach().clone())
        self.bias = nn.Parameter(ours.output.head.bias.detach().clone())
        layer = decoder.stack.layers[0]
        self.hidden, self.deep = nn.Linear(*layer.weight.shape[::-1]), nn.Linear(*decoder.projection.weight.shape[::-1])
        self.hidden.load_state_dict(layer.state_dict())
        self.deep.load_state_dict(decoder.projection.state_dict())
        self.eos = decoder.dictionary.eos()

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Scores (B, T, V)."""
        padded = F.pad(tokens_BT, (ORDER - 2, 0), value=self.eos)
        windows = F.embedding(padded, self.embedding).unfold(1, ORDER - 1, 1)  # (B, T, m, n - 1)
        hidden = torch.tanh(self.hidden(windows.transpose(2, 3).flatten(2)))
        return F.linear(self.deep(hidden), self.table, self.bias)


@pytest.mark.benchmark
@pytest.mark.parametrize("arch", ["feedforward_lm_wt", "feedforward_lm"])
def test_training_step_and_evaluation(arch: str) -> None:
    ours = build_ours(arch).train()
    plain = PlainFeedForward(ours).train()
    words = text(ROWS, STEPS + 1)
    tokens, target = words[:, :-1].contiguous(), words[:, 1:].contiguous()
    losses = {
        "ours": lambda: ours(tokens, target=target, stream_position=0).loss,
        "plain": lambda: F.cross_entropy(plain(tokens).flatten(0, 1), target.flatten(), reduction="sum"),
    }
    torch.testing.assert_close(losses["ours"](), losses["plain"](), rtol=1e-5, atol=0.0)
    models = {"ours": ours, "plain": plain}
    optimizers = {name: torch.optim.Adam(model.parameters(), lr=1e-3, fused=True) for name, model in models.items()}

    def train(name: str) -> None:
        optimizers[name].zero_grad(set_to_none=True)
        (losses[name]() / target.numel()).backward()
        optimizers[name].step()

    @torch.no_grad()
    def evaluate(name: str) -> None:
        losses[name]()

    for what, run in (("training step", train), ("evaluation", evaluate)):
        seconds = interleave({name: partial(run, name) for name in models}, rounds=15)
        print(f"{arch}, {what}: {ROWS} x {STEPS}, V = {VOCABULARY}")
        for name, times in seconds.items():
            print(f"  {name:6s} {1e3 * statistics.median(times):7.1f} ms CPU")
        print(f"  plain over ours {ratio(seconds, 'plain', 'ours')}")
