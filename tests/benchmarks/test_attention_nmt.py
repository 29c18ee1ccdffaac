"""Training steps of attention translation: ours, a plain loop, the bare products, and fairseq's `lstm`.

What is asked of ours: 1.25 times the plain loop at 256/512/10k, 1.2 times at 500/1000/90k, 0.60 of the products.
"""

import statistics

import pytest
import torch
from torch import nn

from fairseq_tiedemb.modules.cells import CELLS

from ..models.common import dictionary
from .attention_nmt_peers import SIZES, BareProducts, FairseqLSTM, PlainLoop, build_ours, training_flops
from .interleave import interleave, ratio


@pytest.mark.benchmark
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", SIZES)
def test_training_step(name: str, cell: str) -> None:
    sizes = SIZES[name]
    words = dictionary(sizes.vocabulary)
    ours = build_ours(words, sizes, cell)
    loop = PlainLoop(ours, cell, hoisted=False)
    hoisted = PlainLoop(ours, cell, hoisted=True)
    source = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.source))
    target = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.target))
    previous = torch.cat((torch.full((sizes.bsz, 1), words.eos()), target[:, :-1]), 1)
    fairseq = FairseqLSTM(words, sizes)
    products = BareProducts(sizes, CELLS[cell].gates, CELLS[cell].states)
    assert products.flops == training_flops(sizes, CELLS[cell].gates, CELLS[cell].states)

    losses = {
        "ours": lambda: ours(source, None, previous, target=target).loss,
        "plain loop": lambda: loop(source, previous, target),
        "hoisted loop": lambda: hoisted(source, previous, target),
        "fairseq lstm": lambda: fairseq.loss(source, previous, target),
    }
    for peer in ("plain loop", "hoisted loop"):
        torch.testing.assert_close(losses["ours"](), losses[peer](), rtol=1e-5, atol=0.0)

    def step(model: nn.Module, contestant: str) -> None:
        model.zero_grad(set_to_none=True)
        losses[contestant]().backward()

    seconds = interleave(
        {
            "ours": lambda: step(ours, "ours"),
            "plain loop": lambda: step(loop, "plain loop"),
            "hoisted loop": lambda: step(hoisted, "hoisted loop"),
            "fairseq lstm": lambda: step(fairseq, "fairseq lstm"),
            "bare products": products,
        },
        rounds=7 if sizes.vocabulary <= 10_000 else 5,
    )
    n_words = sizes.bsz * sizes.target
    flops = {"fairseq lstm": fairseq.training_flops(sizes)}
    print(f"\n{name}, {cell}, three-way tied, {sizes.bsz} rows of {sizes.source} and {sizes.target} words")
    for contestant, times in seconds.items():
        work = flops.get(contestant, products.flops)
        print(
            f"  {contestant:14s} {n_words / statistics.median(times):8.0f} words/s"
            f" {work / n_words / 1e6:7.1f} MFLOP/word {work / statistics.median(times) / 1e9:6.1f} GFLOP/s"
        )
    print(f"  ours over the plain loop      {ratio(seconds, 'plain loop', 'ours')}")
    print(f"  ours over the hoisted loop    {ratio(seconds, 'hoisted loop', 'ours')}")
    print(f"  ours over fairseq's lstm      {ratio(seconds, 'fairseq lstm', 'ours')}  (words/s)")
    print(f"  bare products' time over ours {ratio(seconds, 'bare products', 'ours')}")
