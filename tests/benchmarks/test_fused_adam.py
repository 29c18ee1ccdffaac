"""A step of `fused_adam` beside fairseq's `adam`, on a table of 90,000 words; some five times as fast is asked."""

import statistics

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_tiedemb.optim.fused_adam import FusedAdam

from .interleave import interleave, ratio


@pytest.mark.benchmark
def test_step() -> None:
    steps = {}
    for name, optimizer in (("adam", Adam), ("fused_adam", FusedAdam)):
        weight = torch.nn.Parameter(torch.randn(90_000, 500))
        weight.grad = torch.randn_like(weight)
        steps[name] = optimizer([weight], lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=1e-4).step
    seconds = interleave(steps, rounds=9)
    print("Adam with weight decay, 90,000 x 500, float32")
    for name, times in seconds.items():
        print(f"  {name:12s} {statistics.median(times) * 1e3:7.1f} ms")
    print(f"  fused_adam is faster by {ratio(seconds, 'adam', 'fused_adam')}")
