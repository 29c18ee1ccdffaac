"""Every output layer beside `F.linear` and `F.cross_entropy`: CPU time of loss and gradients, and of given words alone.

Gradients are dense, of features, table and biases; targets are drawn from a Zipf distribution. What is asked, how many
times faster than the peer, is printed beside it.
"""

import statistics
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.outputs import OUTPUT_HEADS, SOFTMAX

from .interleave import interleave, ratio

WORDS, WIDTH = 1_000, 200
SIZES = (10_000, 100_000)
FULL = "F.cross_entropy"
# head -> options by V; a head without a line has its defaults
OPTIONS = {
    "classes": ({"classes": 100}, {"classes": 316}),
    "short-list": ({"short_list": 2_000}, {"short_list": 2_000}),
}


@pytest.mark.benchmark
@pytest.mark.parametrize("place", [0, 1], ids=[f"{size} words" for size in SIZES])
def test_output_layers(place: int) -> None:
    size = SIZES[place]
    words = Dictionary()
    for index in range(size - len(words)):
        words.add_symbol(str(index))
    zipf = torch.cat((torch.zeros(2), 1 / (torch.arange(size - 2) + 3.7)))
    counts = (1e9 * zipf / zipf.sum()).long()
    target = torch.multinomial(zipf, WORDS, replacement=True)
    features = (0.1 * torch.randn(WORDS, WIDTH)).requires_grad_()
    tables = {name: SharedEmbedding(size, WIDTH, 1, bias=True, std=0.1) for name in (FULL, *OUTPUT_HEADS)}
    heads: dict[str, Any] = {}
    for name, entry in OUTPUT_HEADS.items():
        if name == SOFTMAX or entry.build is None:
            continue
        options = OPTIONS[name][place] if name in OPTIONS else {}
        heads[name] = entry.build(entry.options(**options), tables[name], counts, words)
        heads[name].start_bias((counts.clamp(min=1) / counts.sum()).log())
    full = tables[FULL]

    def full_loss() -> torch.Tensor:
        return F.cross_entropy(F.linear(features, full.weight, full.bias), target, reduction="sum")

    losses = {
        FULL: full_loss,
        **{name: lambda head=head: head.loss(features, target).loss for name, head in heads.items()},
    }

    def step(name: str) -> None:
        losses[name]().backward()
        features.grad = None
        for module in (tables.get(name), heads.get(name)):
            if module is not None:
                module.zero_grad()

    report = {"loss and gradients": {name: lambda name=name: step(name) for name in losses}}
    log_prob = {
        name: torch.no_grad()(lambda head=head: head.log_prob(features, target)) for name, head in heads.items()
    }
    report["given words"] = {FULL: torch.no_grad()(full_loss), **log_prob}
    for what, runs in report.items():
        for head in heads.values():
            head.train(what != "given words")
        seconds = interleave(runs, rounds=5)
        print(f"{what}: {WORDS} words, V {size}, D {WIDTH}, float32")
        for name, times in seconds.items():
            line = f"  {name:18s} {statistics.median(times) * 1e3:8.1f} ms"
            if name != FULL:
                line += f"  {ratio(seconds, FULL, name)} times as fast"
            print(line)
