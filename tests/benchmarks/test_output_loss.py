"""The lean loss beside `F.linear` and `F.cross_entropy`: time and peak memory of a forward and a backward pass.

Where torch has it, `F.linear_cross_entropy` takes part, in chunks of 256 words; the loss of method `plain` is asked to
be within a tenth of its time. With label smoothing ours stands beside the mathematics of fairseq's
`label_smoothed_cross_entropy`. Norms and their gradients are part of every figure. What is asked, as multiples of the
peer's time and memory, is printed beside it.
"""

import ctypes
import os
import statistics
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.losses import LossOptions
from fairseq_tiedemb.sharing import SHARING_METHODS

from .conftest import Record
from .interleave import LIUS_METHODS, interleave, ratio
from .language_model_peers import HAS_LINEAR_CROSS_ENTROPY, chunks_of_256

CHUNKED = "F.linear_cross_entropy"
FEW = [(400, 10_000, 200), (400, 10_000, 512), (400, 10_000, 1024)]
FEW += [(400, 32_000, 200), (400, 32_000, 512), (400, 32_000, 1024)]
MANY = [(4_000, 10_000, 512), (4_000, 32_000, 512), (4_000, 90_000, 512)]
MANY += [(1_024, 128_000, 128), (1_024, 250_000, 128)]


def asked(contestant: str, words: int, width: int) -> tuple[float, float]:
    """Multiples of the time and memory of `F.cross_entropy`, or fairseq's, that are asked for."""
    if contestant == "plain, smoothed":
        return (0.85, 0.2) if words >= 4_000 else (1.0, 1.1)
    if words >= 1_024:
        return 1.0, 0.35
    method = SHARING_METHODS[contestant]
    if method.divides_by_norm:
        return (1.35 if width > 512 else 1.25), 1.1
    return (1.15 if method.uses_norms else 1.0), 1.1


def peak_memory(run: Callable[[], object]) -> float:
    """Megabytes that a run adds to the resident memory of a process at most, measured in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            libc = ctypes.CDLL(None)
            libc.mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: what is freed goes back to the system at once
            run()  # now code and tables of the libraries are resident too
            libc.malloc_trim(0)
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")  # the high-water mark starts again here
            before = resident("VmRSS")
            run()
            os.write(writing, f"{(resident('VmHWM') - before) / 1024:.1f}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        megabytes = float(file.read() or "nan")
    os.waitpid(child, 0)
    return megabytes


def resident(field: str) -> int:
    """Kilobytes of a line of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


@pytest.mark.benchmark
@pytest.mark.parametrize(("words", "vocabulary", "width"), FEW + MANY)
def test_output_loss(words: int, vocabulary: int, width: int, record: Record) -> None:
    features = torch.randn(words, width).requires_grad_()
    zipf = 1 / torch.arange(1, vocabulary + 1).float()
    target = torch.multinomial(zipf, words, replacement=True)
    tables = {name: SharedEmbedding(vocabulary, width, 1, method=name) for name in LIUS_METHODS}
    plain = tables["plain"].weight

    def fairseq_loss() -> torch.Tensor:
        log_probabilities = F.log_softmax(F.linear(features, plain), -1, dtype=torch.float32)
        return label_smoothed_nll_loss(log_probabilities, target, 0.1, 1)[0]

    def chunked_loss() -> torch.Tensor:
        return F.linear_cross_entropy(features, plain, target, reduction="sum", options=chunks_of_256())

    losses = {
        "F.cross_entropy": lambda: F.cross_entropy(F.linear(features, plain), target, reduction="sum"),
        **{name: lambda table=table: table.loss(features, target).loss for name, table in tables.items()},
        **({CHUNKED: chunked_loss} if HAS_LINEAR_CROSS_ENTROPY else {}),
        "fairseq, smoothed": fairseq_loss,
        "plain, smoothed": lambda: tables["plain"].loss(features, target, LossOptions(0.1)).loss,
    }

    def step(name: str) -> None:
        losses[name]().backward()
        features.grad = None
        for table in tables.values():
            table.weight.grad = None

    runs = {name: lambda name=name: step(name) for name in losses}
    flops = 6 * words * vocabulary * width
    seconds = interleave(runs, rounds=9 if flops < 5e10 else 5 if flops < 5e11 else 3)
    memory = {name: peak_memory(run) for name, run in runs.items()}
    print(f"{words} words, V {vocabulary}, D {width}, float32")
    for name, times in seconds.items():
        peer = "fairseq, smoothed" if "smoothed" in name else "F.cross_entropy"
        line = f"  {name:22s} {statistics.median(times) * 1e3:8.1f} ms {memory[name]:8.1f} MB"
        if name != peer:
            asks = ("", "")
            if name != CHUNKED:
                asks = tuple(f", asked {most}" for most in asked(name, words, width))
            line += f"  time {ratio(seconds, name, peer)}{asks[0]}"
            line += f"  memory {memory[name] / memory[peer]:.2f}{asks[1]}"
            line += f"  beyond the table's gradient {memory[name] - vocabulary * width * 4 / 2**20:.1f} MB"
        print(line)
    if CHUNKED in losses:
        print(f"  plain over {CHUNKED}: time {ratio(seconds, 'plain', CHUNKED)}")
    peers = dict.fromkeys(LIUS_METHODS, "F.cross_entropy") | ({"chunked": CHUNKED} if CHUNKED in losses else {})
    figures = {}
    for name, peer in peers.items():
        ours = "plain" if name == "chunked" else name
        figures[f"{name}-time"] = ratio(seconds, ours, peer)
        figures[f"{name}-memory"] = f"{memory[ours] / memory[peer]:.2f}"
    record("speed-loss", f"{words},{vocabulary // 1000}k,{width}", figures)
