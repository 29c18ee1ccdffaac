"""On a GPU: training steps and beam search beside fairseq's models and torch's layers, and the loss beside torch's.

Ratios of wall-clock time, the GPU's and that of the processor that feeds it, and of peak memory. On a GPU small models
wait for the processor: what counts there is how many kernels a step starts.
"""

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.sequence_generator import SequenceGenerator
from torch import nn

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.modules.cells import CELLS

from ..models.common import dictionary
from . import attention_nmt_peers as nmt
from . import language_model_peers as lm
from . import test_transformer as transformer
from .conftest import STOCK_SEARCH, Record
from .interleave import LIUS_METHODS, ratio

pytestmark = [pytest.mark.benchmark, pytest.mark.gpu]
DEVICE = "cuda"
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
Runs = Mapping[str, Callable[[], object]]


def interleaved(runs: Runs, *, repeats: int, rounds: int = 7) -> dict[str, list[float]]:
    """Wall-clock seconds of ``repeats`` runs in a row, of every round, by name, after one unmeasured round."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for measured in range(-1, rounds):
        for name, run in runs.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(repeats):
                run()
            torch.cuda.synchronize()
            if measured >= 0:
                seconds[name].append((time.perf_counter() - start) / repeats)
    return seconds


def peak_memory(run: Callable[[], object]) -> float:
    """Megabytes that a run adds to what is allocated, at most."""
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def show(title: str, runs: Runs, ours: str, columns: Mapping[str, str], *, repeats: int) -> dict[str, str]:
    """Measures and prints; returns how many times faster than each peer ours is, and its memory over the first's."""
    seconds, memory = interleaved(runs, repeats=repeats), {name: peak_memory(run) for name, run in runs.items()}
    print(f"{torch.cuda.get_device_name()}: {title}")
    for name, times in seconds.items():
        over = "" if name == ours else f"  ours over it {ratio(seconds, name, ours)}"
        over += "" if name == ours else f", memory {memory[ours] / memory[name]:.2f}"
        print(f"  {name:28s} {statistics.median(times) * 1e3:8.2f} ms {memory[name]:8.1f} MB{over}")
    figures = {column: ratio(seconds, peer, ours) for column, peer in columns.items() if peer in seconds}
    first = next(peer for peer in columns.values() if peer in memory)
    return figures | {"memory": f"{memory[ours] / memory[first]:.2f}"}


def row_of(name: str, dtype: torch.dtype) -> str:
    return name + (",bf16" if dtype == torch.bfloat16 else "")


@each_dtype
@pytest.mark.parametrize(("words", "vocabulary", "width"), [(4_000, 32_000, 512), (8_192, 128_000, 1024)])
def test_output_loss(words: int, vocabulary: int, width: int, dtype: torch.dtype, record: Record) -> None:
    features = torch.randn(words, width, device=DEVICE, dtype=dtype).requires_grad_()
    zipf = 1 / torch.arange(1, vocabulary + 1, device=DEVICE).float()
    target = torch.multinomial(zipf, words, replacement=True)
    with torch.device(DEVICE):
        tables = {name: SharedEmbedding(vocabulary, width, 1, method=name).to(dtype) for name in LIUS_METHODS}
    plain = tables["plain"].weight
    losses: dict[str, Callable[[], torch.Tensor]] = {
        "F.cross_entropy": lambda: F.cross_entropy(F.linear(features, plain), target, reduction="sum"),
        **{method: lambda table=table: table.loss(features, target).loss for method, table in tables.items()},  # type: ignore[misc]
    }
    if lm.HAS_LINEAR_CROSS_ENTROPY:
        losses["F.linear_cross_entropy"] = lambda: F.linear_cross_entropy(features, plain, target, reduction="sum")

    def step(name: str) -> None:
        losses[name]().backward()
        features.grad = None
        for table in tables.values():
            table.weight.grad = None

    columns = {"torch": "F.cross_entropy", "chunked": "F.linear_cross_entropy"}
    runs = {name: partial(step, name) for name in losses}
    figures = show(
        f"loss of {words} words, V {vocabulary}, D {width}, {dtype}",
        runs,
        "plain",
        columns,
        repeats=1 if vocabulary > 100_000 else 5,
    )
    record("speed-gpu", row_of(f"loss,{words},{vocabulary}", dtype), figures)


@each_dtype
def test_transformer_step(dtype: torch.dtype, record: Record) -> None:
    sample = moved(transformer.sample_of(160))
    steps = {}
    for contestant in (transformer.FAIRSEQ, *LIUS_METHODS):
        model = transformer.build(contestant).to(DEVICE, dtype)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
        criterion = transformer.build_criterion(contestant)

        def step(model: Any = model, criterion: Any = criterion, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad(set_to_none=True)
            criterion(model, sample)[0].backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        steps[contestant] = step
    title = f"Transformer, training step of 4,000 words in 160 sentences, {dtype}"
    record("speed-gpu", row_of("transformer", dtype), show(title, steps, "plain", {"fairseq": "fairseq"}, repeats=5))


@each_dtype
@pytest.mark.parametrize("bsz", [32, 1])
def test_beam_search(bsz: int, dtype: torch.dtype, record: Record) -> None:
    sample, length = moved(transformer.sample_of(bsz)), transformer.LENGTH

    def search(model: Any, generate: Any = SequenceGenerator.generate) -> None:
        generator = SequenceGenerator(
            [model], transformer.WORDS, beam_size=transformer.BEAMS, max_len_b=length - 1, min_len=length - 1
        )
        generate(generator, [model], sample)

    runs = {}
    for name in (transformer.FAIRSEQ, "plain"):
        model = transformer.build(name).to(DEVICE, dtype).eval()
        model.prepare_for_inference_(SimpleNamespace(generation=SimpleNamespace(beam=transformer.BEAMS)))
        runs[name] = partial(search, model, *((STOCK_SEARCH,) if name == transformer.FAIRSEQ else ()))
    title = f"Transformer, beam {transformer.BEAMS}, {bsz} sentences of {length} words, {dtype}"
    record("speed-gpu", row_of(f"beam,{bsz}", dtype), show(title, runs, "plain", {"fairseq": "fairseq"}, repeats=1))


@each_dtype
@pytest.mark.parametrize(
    ("preset", "size", "steps"),
    [("zaremba_lm_small_wt", 200, 20), ("zaremba_lm_medium_wt", 650, 35), ("zaremba_lm_large_wt", 1500, 35)],
)
def test_language_model_step(preset: str, size: int, steps: int, dtype: torch.dtype, record: Record) -> None:
    ours = lm.build_ours(preset, dropout=0.0).train()
    models: dict[str, Any] = {
        "ours": ours,
        "fairseq lstm_lm": lm.FairseqLSTMLM(ours),
        "nn.LSTM": lm.TorchLSTMLM(ours, chunked=False),
    }
    words = lm.text(20, steps + 1).to(DEVICE)
    tokens, target = words[:, :-1].contiguous(), words[:, 1:].contiguous()
    for model in models.values():
        model.to(DEVICE, dtype)
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.1) for name, model in models.items()}

    def step(name: str) -> None:
        optimizers[name].zero_grad(set_to_none=True)
        model = models[name]
        loss = model(tokens, target=target, stream_position=0).loss if name == "ours" else model.loss(tokens, target)
        (loss / 20).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizers[name].step()

    title = f"LSTM language model, 2 x {size}, tied, 20 x {steps}, {dtype}"
    columns = {"fairseq": "fairseq lstm_lm", "torch": "nn.LSTM"}
    runs = {name: partial(step, name) for name in models}
    record("speed-gpu", row_of(f"lm,2x{size}", dtype), show(title, runs, "ours", columns, repeats=20))


@each_dtype
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", nmt.SIZES)
def test_attention_translation_step(name: str, cell: str, dtype: torch.dtype, record: Record) -> None:
    sizes = nmt.SIZES[name]
    words = dictionary(sizes.vocabulary)
    ours = nmt.build_ours(words, sizes, cell)
    models: dict[str, nn.Module] = {
        "ours": ours,
        "fairseq lstm": nmt.FairseqLSTM(words, sizes),
        "hoisted loop": nmt.PlainLoop(ours, cell, hoisted=True),
    }
    models = {key: copy.deepcopy(model).to(DEVICE, dtype) for key, model in models.items()}
    source = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.source), device=DEVICE)
    target = torch.randint(4, sizes.vocabulary, (sizes.bsz, sizes.target), device=DEVICE)
    previous = torch.cat((torch.full_like(target[:, :1], words.eos()), target[:, :-1]), 1)
    losses: dict[str, Callable[[], torch.Tensor]] = {
        "ours": lambda: models["ours"](source, None, previous, target=target).loss,
        "fairseq lstm": lambda: models["fairseq lstm"].loss(source, previous, target),  # type: ignore[operator]
        "hoisted loop": lambda: models["hoisted loop"](source, previous, target),
    }

    def step(contestant: str) -> None:
        models[contestant].zero_grad(set_to_none=True)
        losses[contestant]().backward()

    title = f"attention translation {name}, {cell}, {dtype}"
    columns = {"fairseq": "fairseq lstm", "torch": "hoisted loop"}
    figures = show(title, {name: partial(step, name) for name in models}, "ours", columns, repeats=3)
    record("speed-gpu", row_of(f"nmt,{name.partition('/')[0]},{cell.upper()}", dtype), figures)


def moved(batch: dict[str, Any]) -> dict[str, Any]:
    """A sample on the GPU."""
    return {
        name: moved(value) if isinstance(value, dict) else value.to(DEVICE) if torch.is_tensor(value) else value
        for name, value in batch.items()
    }
