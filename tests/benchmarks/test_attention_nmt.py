"""Training steps of attention translation: ours, loops over time, fairseq's `lstm`, joeynmt, and the step's limit.

What is asked of ours: 1.25 times the plain loop at 256/512/10k, 1.2 times at 500/1000/90k. joeynmt takes part where it
is installed; eole has no model of these sizes, since its encoder and decoder are equally wide.
"""

import copy
import statistics
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_tiedemb import products
from fairseq_tiedemb.modules.attention import BLOCK
from fairseq_tiedemb.modules.cells import CELLS

from ..models.common import dictionary
from .attention_nmt_peers import HAS_JOEYNMT, SIZES, FairseqLSTM, JoeyNMT, PlainLoop, build_ours, step_work
from .conftest import Record
from .interleave import SHIPPED, interleave, ratio
from .limits import OWN, OwnOperations, Work, rates, show_limit

COLUMNS = {
    "loop": "plain loop",
    "hoisted": "hoisted loop",
    "fairseq": "fairseq lstm",
    "joeynmt": "joeynmt",
    "hoisted-float32": "hoisted loop" + SHIPPED,
    "fairseq-float32": "fairseq lstm" + SHIPPED,
}


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", SIZES)
def test_training_step(name: str, cell: str, dtype: torch.dtype, record: Record) -> None:
    sizes = SIZES[name]
    words = dictionary(sizes.vocabulary)
    ours = build_ours(words, sizes, cell)
    loop = PlainLoop(ours, cell, hoisted=False)
    hoisted = PlainLoop(ours, cell, hoisted=True)
    source = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.source))
    target = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.target))
    previous = torch.cat((torch.full((sizes.bsz, 1), words.eos()), target[:, :-1]), 1)
    models: dict[str, nn.Module] = {"ours": ours, "plain loop": loop, "hoisted loop": hoisted}
    losses = {
        "ours": lambda: ours(source, None, previous, target=target).loss,
        "plain loop": lambda: loop(source, previous, target),
        "hoisted loop": lambda: hoisted(source, previous, target),
    }
    for peer in ("plain loop", "hoisted loop"):
        torch.testing.assert_close(losses["ours"](), losses[peer](), rtol=1e-5, atol=0.0)
    models["fairseq lstm"] = FairseqLSTM(words, sizes)
    if HAS_JOEYNMT:
        models["joeynmt"] = JoeyNMT(words, sizes, cell)
    for peer in list(models)[3:]:
        losses[peer] = partial(models[peer].loss, source, previous, target)

    shipped = {peer: copy.deepcopy(models[peer]) for peer in ("hoisted loop", "fairseq lstm")}
    for model in models.values():
        model.to(dtype)
    if dtype != torch.float32 or products.in_use() != "blas":
        models |= {peer + SHIPPED: model for peer, model in shipped.items()}
        losses["hoisted loop" + SHIPPED] = lambda: shipped["hoisted loop"](source, previous, target)
        losses["fairseq lstm" + SHIPPED] = partial(shipped["fairseq lstm"].loss, source, previous, target)

    def step(contestant: str) -> None:
        models[contestant].zero_grad(set_to_none=True)
        losses[contestant]().backward()

    parameters = sum(parameter.numel() for parameter in ours.parameters())
    work = step_work(sizes, CELLS[cell].gates, CELLS[cell].states, parameters)
    with FlopCounterMode(display=False) as counter:
        step("plain loop")
    assert 0.95 < work.flops / counter.get_total_flops() <= 1.0

    seconds = interleave(
        {
            **{contestant: partial(step, contestant) for contestant in models},
            **rates(dtype),
            OWN: OwnOperations(partial(step, "ours")).again,
        },
        rounds=7 if sizes.vocabulary <= 10_000 else 5,
    )
    n_words = sizes.bsz * sizes.target
    print(f"{name}, {cell}, {dtype}, three-way tied, {sizes.bsz} rows of {sizes.source} and {sizes.target} words")
    for contestant in models:
        over = "" if contestant == "ours" else f"  ours over it {ratio(seconds, contestant, 'ours')}"
        print(f"  {contestant:28s} {n_words / statistics.median(seconds[contestant]):8.0f} words/s{over}")
    limits = show_limit(Work(work.flops, work.bytes * dtype.itemsize // 4), seconds, "ours")
    row = f"{name.partition('/')[0]},{cell.upper()}" + (",bf16" if dtype == torch.bfloat16 else "")
    figures = {column: ratio(seconds, peer, "ours") for column, peer in COLUMNS.items() if peer in seconds}
    record("speed-nmt", row, {**figures, **limits})


@pytest.mark.benchmark
def test_hidden_layer_of_attention() -> None:
    """A block of it: by the sigmoid, which cells take, too, or by ``powers``, each over the tanh of the paper."""
    numbers, other, out = torch.rand(3, BLOCK)
    one = torch.ones(())
    seconds = interleave(
        {
            "tanh": lambda: [torch.add(numbers, other, out=out).tanh_() for _ in range(50)],
            "sigmoid": lambda: [torch.add(numbers, other, out=out).sigmoid_() for _ in range(50)],
            "powers": lambda: [torch.addcmul(one, numbers, other, out=out).reciprocal_() for _ in range(50)],
        }
    )
    for way in ("sigmoid", "powers"):
        print(f"tanh's time over that of {way}: {ratio(seconds, 'tanh', way)}")
