"""LSTM language models: a training step, the whole of fairseq-train, and evaluation with carried state.

What is asked of ours, tied: at 2 x 200, 20 x 20 at least 1.35 times fairseq's `lstm_lm`, at 2 x 1500, 20 x 35 2.2
times, and no slower than torch's LSTM with torch's chunked loss, whose kernel ours has too; fairseq-train at most 8 %
and 2 % above a bare loop over the same model; evaluation in chunks at least 10 times faster than token by token.
"""

import copy
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fairseq_tiedemb import products
from fairseq_tiedemb.models._stream_lm import StreamLM

from ..conftest import USER_DIR, run
from .conftest import Record, cpu_seconds
from .interleave import SHIPPED, interleave, ratio
from .language_model_peers import (
    HAS_LINEAR_CROSS_ENTROPY,
    VOCABULARY,
    FairseqLSTMLM,
    TorchLSTMLM,
    build_ours,
    step_work,
    text,
)
from .limits import OWN, OwnOperations, Work, rates, show_limit

SIZES = {"small": ("zaremba_lm_small_wt", 200, 20), "large": ("zaremba_lm_large_wt", 1500, 35)}
ROWS = 20


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    optimizer.zero_grad(set_to_none=True)
    (loss / ROWS).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss.item()


# Columns of the table speed-lm-step, and the contestant over which ours are.
COLUMNS = {
    "fairseq": "fairseq lstm_lm",
    "torch": "nn.LSTM, F.cross_entropy",
    "chunked": "nn.LSTM, F.linear_cross_entropy",
    "chunked-float32": "nn.LSTM, F.linear_cross_entropy" + SHIPPED,
}


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", SIZES)
def test_training_step(name: str, dtype: torch.dtype, record: Record) -> None:
    arch, size, steps = SIZES[name]
    ours = build_ours(arch, dropout=0.0).train()
    models: dict[str, Any] = {
        "ours": ours,
        COLUMNS["fairseq"]: FairseqLSTMLM(ours),
        COLUMNS["torch"]: TorchLSTMLM(ours, chunked=False),
    }
    if HAS_LINEAR_CROSS_ENTROPY:
        models[COLUMNS["chunked"]] = TorchLSTMLM(ours, chunked=True)
    words = text(ROWS, steps + 1)
    tokens, target = words[:, :-1].contiguous(), words[:, 1:].contiguous()

    def loss(contestant: str) -> torch.Tensor:
        if contestant == "ours":
            return ours(tokens, target=target, stream_position=0).loss
        return models[contestant].loss(tokens, target)

    for peer in models:
        torch.testing.assert_close(loss(peer), loss("ours"), rtol=1e-5, atol=0.0)
    with FlopCounterMode(display=False) as counter:
        loss(COLUMNS["fairseq"]).backward()
    if HAS_LINEAR_CROSS_ENTROPY and (dtype != torch.float32 or products.in_use() != "blas"):
        models[COLUMNS["chunked-float32"]] = copy.deepcopy(models[COLUMNS["chunked"]])
    for contestant, model in models.items():
        model.to(torch.float32 if contestant.endswith(SHIPPED) else dtype)
    optimizers = {key: torch.optim.SGD(model.parameters(), lr=0.1) for key, model in models.items()}
    repeats = 10 if name == "small" else 1

    def train(contestant: str, updates: int = repeats) -> None:
        for _ in range(updates):
            update(models[contestant], optimizers[contestant], loss(contestant))

    work = step_work(sum(parameter.numel() for parameter in ours.parameters()), size, ROWS, steps)
    assert 0.95 < work.flops / counter.get_total_flops() <= 1.0

    runs = {contestant: partial(train, contestant) for contestant in models}
    own = OwnOperations(partial(train, "ours", 1)).again
    seconds = interleave({**runs, **rates(dtype), OWN: own}, rounds=9 if name == "small" else 5)
    print(f"{name}: 2 x {size}, tied, {ROWS} x {steps}, V = {VOCABULARY}, {dtype}")
    for contestant in models:
        rate = repeats * ROWS * steps / statistics.median(seconds[contestant])
        over = "" if contestant == "ours" else f"  ours over it {ratio(seconds, contestant, 'ours')}"
        print(f"  {contestant:48s} {rate:8.0f} words/s{over}")
    figures = {column: ratio(seconds, peer, "ours") for column, peer in COLUMNS.items() if peer in seconds}
    figures |= show_limit(Work(work.flops, work.bytes * dtype.itemsize // 4), seconds, "ours", steps=repeats)
    record("speed-lm-step", f"2x{size}" + (",bf16" if dtype == torch.bfloat16 else ""), figures)


BARE_LOOP = """
import sys, torch
torch.set_num_threads(1)
sys.path[:0] = [{root!r}]
from fairseq_tiedemb import fast_products
from tests.benchmarks.test_language_models import bare_loop
fast_products()  # as the command has them
bare_loop({arch!r}, {steps}, {updates})
"""


def bare_loop(arch: str, steps: int, updates: int) -> None:
    """A training loop that a user of torch alone would write, over our model."""
    model: StreamLM = build_ours(arch).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    words = text(ROWS, updates * steps + 1)
    for position in range(0, updates * steps, steps):
        chunk = words[:, position : position + steps + 1]
        result = model(chunk[:, :-1], target=chunk[:, 1:], stream_position=position)
        update(model, optimizer, result.loss)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarised text of 10,000 word types."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = text(20_000, 20).tolist()
    (folder / "train").write_text("".join(" ".join(f"w{word}" for word in line) + "\n" for line in lines))
    every = " ".join(f"w{word}" for word in range(4, VOCABULARY))
    with open(folder / "train", "a") as file:
        file.write(every + "\n")
    run("preprocess", "--only-source", "--trainpref", folder / "train", "--destdir", folder / "bin")
    return folder / "bin"


@pytest.mark.benchmark
@pytest.mark.parametrize(("name", "short", "long"), [("small", 20, 420), ("large", 2, 14)])
def test_whole_command(corpus: Path, name: str, short: int, long: int, record: Record) -> None:
    """Time of an update in fairseq-train beside one of a bare loop; what starting costs is taken off both."""
    arch, _, steps = SIZES[name]
    command = [
        *(sys.executable, "-m", "fairseq_cli.train", str(corpus), "--user-dir", str(USER_DIR), "--arch", arch),
        *("--no-save", "--disable-validation", "--num-workers", "0", "--max-update"),
    ]
    root = str(USER_DIR.parent)
    ratios = []
    for _ in range(5):
        train = cpu_seconds([*command, str(long)]) - cpu_seconds([*command, str(short)])
        loops = [BARE_LOOP.format(root=root, arch=arch, steps=steps, updates=updates) for updates in (long, short)]
        loop = cpu_seconds([sys.executable, "-c", loops[0]]) - cpu_seconds([sys.executable, "-c", loops[1]])
        ratios.append(train / loop)
    over = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}-{max(ratios):.3f}]"
    print(f"{name}: fairseq-train over a bare loop {over}")
    record("speed-lm", f"update,{name}", {"ratio": over})


FREED_MEMORY = """
import time, torch
from fairseq_tiedemb.training import cpu
from tests.benchmarks.test_language_models import bare_loop
if {kept}:
    cpu.keep_freed_memory()
torch.set_default_dtype(torch.{dtype})
bare_loop("zaremba_lm_small_wt", 20, 20)
before = time.process_time()
bare_loop("zaremba_lm_small_wt", 20, 200)
print(time.process_time() - before)
"""


@pytest.mark.benchmark
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_freed_memory(dtype: str) -> None:
    """Updates where freed memory is kept, as fairseq's commands have it, and where it is given back."""
    seconds: dict[str, list[float]] = {"kept": [], "given back": []}
    for _ in range(5):
        for memory, runs in seconds.items():
            command = [sys.executable, "-c", FREED_MEMORY.format(kept=memory == "kept", dtype=dtype)]
            runs.append(float(subprocess.check_output(command, cwd=USER_DIR.parent, text=True)))
    print(f"{dtype}: freed memory given back over kept {ratio(seconds, 'given back', 'kept')}")


@pytest.mark.benchmark
@pytest.mark.parametrize(("name", "tokens"), [("small", 1000), ("large", 200)])
def test_evaluation_with_carried_state(name: str, tokens: int, record: Record) -> None:
    arch, size, _ = SIZES[name]
    model = build_ours(arch).eval()
    words = text(1, tokens + 1)
    nll: dict[int, float] = {}

    @torch.no_grad()
    def evaluate(chunk: int) -> None:
        nll[chunk] = 0.0
        for position in range(0, tokens, chunk):
            stop = min(position + chunk, tokens)
            scores, _ = model(words[:, position:stop], stream_position=position)
            log_probabilities = torch.log_softmax(scores.double(), -1)
            nll[chunk] -= log_probabilities.gather(2, words[:, position + 1 : stop + 1, None]).sum().item()

    seconds = interleave({"token by token": lambda: evaluate(1), "chunks of 200": lambda: evaluate(200)}, rounds=5)
    assert nll[200] == pytest.approx(nll[1], rel=1e-6)
    over = ratio(seconds, "token by token", "chunks of 200")
    print(f"{name}: 2 x {size}, batch 1, chunks over tokens {over}")
    record("speed-lm", f"chunks,{name}", {"ratio": over})
