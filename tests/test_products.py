"""The library of float32 products is the faster exact one, the same after a resume, and changes nothing else."""

import contextlib
import functools
import logging
import os
import pickle
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fairseq_cli.train
import pytest
import torch
from fairseq import options
from fairseq.utils import set_torch_seed
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import fairseq_tiedemb
from fairseq_tiedemb import cli, products
from fairseq_tiedemb.training import cpu

from .conftest import USER_DIR, InProcess, configuration
from .test_resume import LM, NMT, assert_same, saved

Measured = tuple[dict[str, float], dict[str, float]]

HERE, EXACT, ROUNDED = products.measure, 3e-7, 2e-3


def measured(blas: float, onednn: float, error: float = EXACT) -> Measured:
    return {"blas": blas, "onednn": onednn}, {"blas": EXACT, "onednn": error}


AMD, INTEL, AMX = measured(102, 229), measured(150, 121), measured(150, 290, ROUNDED)


@pytest.fixture(autouse=True)
def default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Before and after each test, nothing is chosen."""
    monkeypatch.setenv(products.VARIABLE, "auto")
    monkeypatch.setattr(cpu, "_in_use", None)
    yield
    products.use("blas")


@pytest.fixture(params=["new", "old"])
def switch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Reads torch's switch: that of torch 2.9 and newer, or that of all versions."""
    if request.param == "new" and not hasattr(torch.backends.mkldnn, "matmul"):
        pytest.skip("this torch has the old switch alone")
    if request.param == "old":
        monkeypatch.setattr(torch.backends, "mkldnn", SimpleNamespace())
    yield products.in_use
    products.use("blas")


def on(machine: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine's measurement."""
    monkeypatch.setattr(products, "measure", lambda: machine)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [(AMD, "onednn"), (INTEL, "blas"), (AMX, "blas"), (measured(100, 120), "blas"), (measured(100, 130), "onednn")],
    ids=["AMD", "Intel", "AMX", "noise", "more than noise"],
)
def test_the_faster_exact_library_is_chosen(
    machine: Measured, expected: str, switch: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on(machine, monkeypatch)
    found = fairseq_tiedemb.fast_products()
    assert (found.way, found.rates, found.errors) == (expected, *machine)
    assert switch() == expected
    # By hand, whatever was measured; an argument before the environment variable.
    for way in ("onednn", "blas"):
        monkeypatch.setenv(products.VARIABLE, way)
        assert products.fast_products().way == switch() == way
    assert products.fast_products("onednn").way == switch() == "onednn"


def test_measuring_is_short_and_leaves_no_trace(switch: Callable[[], str]) -> None:
    numbers, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with FlopCounterMode(display=False) as flops:
            rates, errors = HERE.__wrapped__()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert flops.get_total_flops() < 1e9  # 50 ms of a core with 20 GFLOP/s
    assert switch() == "blas"
    assert torch.equal(torch.get_rng_state(), numbers)
    assert rates.keys() == errors.keys() == {*products.WAYS}
    assert 1 < rates["blas"] < 1e4
    assert errors["blas"] < products.EXACT


@pytest.mark.parametrize("rounded", ["products", "step"])
def test_rounding_is_seen_in_products_and_in_the_step(rounded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, product, step = ["blas"], products._products, torch.lstm
    # A switch that torch does not know: on a processor with AMX, torch's own rounds both.
    switch = (lambda: words[-1], words.append, {way: way for way in products.WAYS})
    monkeypatch.setattr(products, "_switch", lambda: switch)

    def seen(result: torch.Tensor) -> torch.Tensor:
        return result.bfloat16().float() if result.dtype == torch.float and products.in_use() == "onednn" else result

    if rounded == "products":
        monkeypatch.setattr(products, "_products", lambda *inputs: [seen(each) for each in product(*inputs)])
    else:
        monkeypatch.setattr(torch, "lstm", lambda *inputs: [seen(each) for each in step(*inputs)])
    assert HERE.__wrapped__()[1]["onednn"] > products.EXACT


@pytest.mark.parametrize(("way", "name"), [(None, products.VARIABLE), ("mkl", "way")])
def test_another_way_is_refused(way: str | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(products.VARIABLE, "mkl")
    with pytest.raises(ValueError, match=f"{name}: needs auto, blas or onednn; got mkl. Use auto"):
        products.fast_products(way)


def test_a_gpu_is_left_as_it_is(switch: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    on(AMD, monkeypatch)
    assert products.fast_products() == products.Products("blas")
    assert switch() == "blas"


# --- fairseq's commands ----------------------------------------------------------------------------------------------


def test_a_resumed_training_goes_on_with_its_library(
    train: InProcess, parallel_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(folder: str, machine: Measured, epochs: int, *flags: object) -> str:
        on(machine, monkeypatch)
        return train(
            parallel_data, *NMT, "--max-tokens", 200, "--max-epoch", epochs, "--save-dir", tmp_path / folder, *flags
        )

    text = run("whole", AMD, 2)
    assert "products on the CPU: onednn (blas 102 GFLOP/s, error 3e-07; onednn 229 GFLOP/s, error 3e-07)" in text
    run("resumed", AMD, 1)
    assert "products on the CPU: onednn, as in the training before" in run("resumed", measured(200, 201), 2)
    assert_same(saved(tmp_path / "resumed"), saved(tmp_path / "whole"))
    state = torch.load(tmp_path / "resumed" / "checkpoint_last.pt", weights_only=False)
    assert state["extra_state"]["products"] == "onednn"
    assert "products" not in state["cfg"]["model"]
    # Not where it rounds, and not against what the user says.
    assert "onednn, as in the training before, is not exact on this processor" in run("resumed", AMX, 3)
    assert "as in the training before" not in run("whole", AMD, 3, "--products", "blas")


TRANSFORMER = [
    *(
        f"--{side}-{size}"
        for side in ("encoder", "decoder")
        for size in ("layers=1", "embed-dim=16", "ffn-embed-dim=16")
    ),
    *("--encoder-attention-heads=2", "--decoder-attention-heads=2", "--optimizer=adam", "--share-all-embeddings"),
]


@pytest.mark.parametrize("way", products.WAYS)
def test_plain_is_fairseq_by_each_library(way: str, train: InProcess, parallel_data: Path, tmp_path: Path) -> None:
    flags = (*TRANSFORMER, "--dropout", 0.1, "--max-tokens", 200, "--max-update", 5)
    for arch in ("transformer", "tied_transformer"):
        train(
            parallel_data, "--arch", arch, *flags, "--products", way, "--save-dir", tmp_path / arch, "--num-workers", 0
        )
    ours, theirs = (saved(tmp_path / arch)["model"] for arch in ("tied_transformer", "transformer"))
    assert_same({**ours}, {**theirs})


def test_hydra_chooses_when_the_trainer_is_made(
    lm_data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on(AMD, monkeypatch)
    config = configuration(options.get_training_parser(), lm_data, *LM, "--max-update", 1, "--no-save")
    monkeypatch.setattr(cpu, "_in_use", None)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        fairseq_cli.train.main(config)
    assert sum("float32 products on the CPU: onednn" in message for message in caplog.messages) == 1


def way_in_use(config: Any) -> str:
    return products.in_use()


def test_processes_that_a_command_starts_take_its_choice() -> None:
    passed = []
    cpu.choose("onednn")
    cpu.processes_use_what_is_chosen(lambda config, main: passed.append(main), None, way_in_use)
    cpu.use("blas")
    main = pickle.loads(pickle.dumps(passed[0]))
    assert isinstance(main, functools.partial)
    assert main(None) == "onednn"


FAULTS = """
import ctypes, resource
from fairseq_tiedemb.training import cpu
libc, size = ctypes.CDLL(None), 4 << 20
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for step in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [ctypes.memset(libc.malloc(size), 1, size) for _ in range(8)]
    for block in blocks:
        libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    if step == 2:
        cpu.choose("blas")
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_commands_keep_freed_memory() -> None:
    environment = {**os.environ, "GLIBC_TUNABLES": ""}
    printed = subprocess.check_output([sys.executable, "-c", FAULTS], cwd=USER_DIR.parent, env=environment)
    faults = [int(number) for number in printed.split()]
    pages = 8 * (4 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert faults[2] > pages / 2  # given back, and asked for again
    assert faults[5] < pages / 100


LARGE_TENSOR = """
import fairseq, fairseq_tiedemb, torch
tensor = torch.ones(24 << 20)
print(any(line.startswith("VmFlags") and "hg" in line.split() for line in open("/proc/self/smaps")))
"""


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="needs Linux with huge pages")
def test_commands_ask_for_large_tensors_in_huge_pages() -> None:
    """Importing the plugin is in time: torch reads the variable at the first tensor. A user's 0 stays."""
    environment = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    asked = [
        subprocess.check_output([sys.executable, "-c", LARGE_TENSOR], cwd=USER_DIR.parent, env=environment | given)
        for given in ({}, {"THP_MEM_ALLOC_ENABLE": "0"})
    ]
    assert asked == [b"True\n", b"False\n"]


def test_commands_keep_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    monkeypatch.setenv(names[0], "7")  # the user's
    monkeypatch.delenv(names[1], raising=False)
    limits = []
    chosen = products.Products("blas")
    monkeypatch.setattr(
        cpu, "fast_products", lambda way: limits.append([os.environ.get(name) for name in names]) or chosen
    )
    cpu.choose("blas")
    assert limits == [["7", "256"]]  # before the first product, at which they are read


class Libraries(TorchDispatchMode):
    """Which library multiplies each matrix by another."""

    def __init__(self) -> None:
        super().__init__()
        self.of_products: list[str] = []

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.of_products.append(products.in_use())
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_blas_linear_is_linear_by_blas(dtype: torch.dtype) -> None:
    inputs, weight, grad = torch.randn(7, 5).to(dtype), torch.randn(3, 5).to(dtype), torch.randn(7, 3).to(dtype)
    given = [each.clone().requires_grad_() for each in (inputs, weight)]
    with products.multiplying_by("onednn"), Libraries() as libraries:
        result = products.blas_linear(*given)
        result.backward(grad.to(result.dtype))
    assert libraries.of_products == ["blas"] * 3
    i, w, g = inputs.double(), weight.double(), grad.double()
    with torch.autocast("cpu", torch.bfloat16):
        again = products.blas_linear(*given)
    again.backward(grad.to(again.dtype))  # outside autocast
    assert again.equal(result)
    given[0].grad, given[1].grad = given[0].grad / 2, given[1].grad / 2
    for found, exact in zip([result, *(each.grad for each in given)], [i @ w.t(), g @ w, g.t() @ i], strict=True):
        torch.testing.assert_close(found, exact.to(found.dtype))
    assert result.dtype == (dtype if dtype == torch.float64 else torch.float32)


@pytest.mark.parametrize("shape", [(63, 8), (64, 8), (3, 50, 8), (520, 1, 8)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_even_linear_is_linear(shape: tuple[int, ...], with_bias: bool) -> None:
    inputs, weight, bias = (torch.randn(size).bfloat16() for size in (shape, (5, 8), (5,)))
    grad = torch.randn(*shape[:-1], 5).bfloat16()
    given = [each.clone().requires_grad_() for each in ((inputs, weight, bias) if with_bias else (inputs, weight))]
    result = products.even_linear(*given)
    result.add_(1).backward(grad)  # modules may add a residual in place
    i, w, b, g = (each.double() for each in (inputs, weight, bias, grad))
    rows = g.flatten(0, -2)
    expected = [i @ w.t() + b * with_bias + 1, g @ w, rows.t() @ i.flatten(0, -2), rows.sum(0)]
    for found, exact in zip([result, *(each.grad for each in given)], expected, strict=False):
        # Sums of up to 150 products, of numbers about 1, are rounded once to bfloat16, and then once more.
        torch.testing.assert_close(found.double(), exact, rtol=2 * torch.finfo(torch.bfloat16).eps, atol=0.02)


def test_another_library_multiplies_for_a_while(switch: Callable[[], str]) -> None:
    read, write, _ = products._switch()
    functional, word = torch.nn.functional, read()
    with products.multiplying_by("onednn"):
        with contextlib.suppress(KeyError), products.of_vectors(torch.ones(1)):
            assert (switch(), functional.scaled_dot_product_attention) == ("blas", products.attention)
            raise KeyError
        assert (switch(), functional.scaled_dot_product_attention) == ("onednn", products.short_attention)
        with products.of_vectors(torch.ones(1, device="meta")):
            assert switch() == "onednn"
        found: list[str] = []

        def elsewhere() -> None:
            with products.of_vectors(torch.ones(1)):
                found.append(switch())

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert found == ["onednn"]  # other threads leave the process's switch alone
    assert (read(), functional.scaled_dot_product_attention) == (word, products.attention)
    write(products._switch()[2]["onednn"])  # by the user, who keeps torch's attention
    with products.of_vectors(torch.ones(1)):
        assert switch() == "blas"
    assert (switch(), functional.scaled_dot_product_attention) == ("onednn", products.attention)
    products.use("onednn")
    assert functional.scaled_dot_product_attention is products.short_attention


@pytest.mark.parametrize(
    ("dtype", "length", "fused"),
    [(torch.float32, 512, False), (torch.float32, 513, True), (torch.bfloat16, 9, True), (torch.float64, 9, True)],
)
def test_short_texts_attend_by_whole_products(dtype: torch.dtype, length: int, fused: bool) -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    given = [torch.randn(2, 3, size, 8, dtype=dtype, requires_grad=True) for size in (7, length, length)]
    mask = torch.zeros(2, 1, 7, length, dtype=dtype)
    mask[1, :, :, -3:] = -torch.inf
    exact = [each.detach().double().requires_grad_() for each in given]
    query, key, value = exact
    expected = torch.softmax(query @ key.transpose(2, 3) / 8**0.5 + mask.double(), -1) @ value
    expected.sum().backward()
    with products.multiplying_by("onednn"), torch.profiler.profile() as seen:
        found = torch.nn.functional.scaled_dot_product_attention(*given, mask)
        found.sum().backward()
    assert any("flash_attention" in event.key for event in seen.key_averages()) == fused
    rounds = HERE()[1]["onednn"] > products.EXACT  # to bfloat16, on processors with AMX
    is_close = dtype == torch.float64 or (dtype == torch.float32 and not rounds)
    close = {"rtol": 1e-4, "atol": 1e-5} if is_close else {"rtol": 0.05, "atol": 0.05}
    for one, other in zip(
        [found, *(each.grad for each in given)], [expected, *(each.grad for each in exact)], strict=True
    ):
        torch.testing.assert_close(one.double(), other, **close)
    assert torch.nn.functional.scaled_dot_product_attention is attend is products.attention


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attn_mask": torch.tensor([[True, True, False]] * 4)},
        {"attn_mask": torch.tensor([[0.0, 1.0, -torch.inf]] * 4)},
        {"is_causal": True},
        {"is_causal": True, "attn_mask": torch.tensor([[0.0, 1.0, -torch.inf]] * 4)},
        {"scale": 0.3},
        {"enable_gqa": True},
        {"dropout_p": 0.5},
    ],
    ids=str,
)
def test_short_texts_attend_with_every_option(options: dict[str, Any]) -> None:
    if {"is_causal", "attn_mask"} <= options.keys() and torch.__version__ >= (2, 14):
        pytest.skip("torch 2.14 and newer refuse a mask beside is_causal")
    heads = 1 if "enable_gqa" in options else 2
    query, key, value = (torch.randn(2, size, length, 8) for size, length in ((2, 4), (heads, 3), (heads, 3)))
    found = []
    for attend in (products.attention, products.short_attention):
        torch.manual_seed(3)
        found.append(attend(query=query, key=key, value=value, **options))
    torch.testing.assert_close(*found)


def test_short_texts_attend_in_the_precision_of_autocast() -> None:
    given = torch.randn(3, 2, 4, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = (attend(*given) for attend in (products.attention, products.short_attention))
    assert torch.equal(found, expected)
    assert found.dtype == torch.bfloat16


@pytest.mark.parametrize(("rows", "multiple"), [(63, 1), (64, 16), (511, 16), (512, 64), (4000, 64)])
def test_few_rows_are_filled_up_with_fewer(rows: int, multiple: int) -> None:
    half, single = torch.empty(0).bfloat16(), torch.empty(0)
    assert (products.row_multiple(half, rows), products.row_multiple(single, rows)) == (multiple, 1)


def test_even_linear_takes_what_linear_takes() -> None:
    inputs, weight = torch.randn(8, 70).bfloat16().t().requires_grad_(), torch.randn(5, 8).bfloat16()
    kept: list[torch.Size] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.shape) or tensor, lambda same: same
    ):
        found = products.even_linear(inputs, weight)  # a frozen weight
    assert kept == [weight.shape]
    torch.testing.assert_close(found, torch.nn.functional.linear(inputs, weight), rtol=0.02, atol=0.02)
    assert products.even_linear(inputs, weight[0]).shape == (70,)
    with torch.autocast("cpu", torch.bfloat16):
        products.even_linear(inputs, weight.float().requires_grad_()).sum().backward()
    [grad] = torch.autograd.grad(products.even_linear(inputs, weight).square().sum(), inputs, create_graph=True)
    grad.sum().backward()


class Rows(TorchDispatchMode):
    """The sizes of products of two matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_):
            self.seen.update(args[-2].shape, args[-1].shape)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "flags",
    [["--arch=tied_transformer", *TRANSFORMER], ["--arch=transformer", *TRANSFORMER], [*NMT, "--cell", "gru"]],
    ids=["ours", "fairseq's", "recurrent"],
)
@pytest.mark.parametrize("precision", [(), ("--bf16",)], ids=["float32", "bfloat16"])
def test_trainings_in_bfloat16_multiply_even_rows(
    flags: list[object], precision: tuple[str, ...], train: InProcess, parallel_data: Path
) -> None:
    with Rows() as rows:
        more = (*precision, "--batch-size", 27, "--max-update", 3, "--no-save", "--disable-validation")
        train(parallel_data, *flags, *more)
    uneven = {count for count in rows.seen if count % products.row_multiple(torch.empty(0).bfloat16(), count)}
    assert bool(uneven) == (not precision), uneven


@pytest.mark.parametrize("there", [False, True], ids=["CPU alone", "GPU"])
def test_seeds_go_to_the_devices_that_are_there(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    of_gpus: list[int] = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", of_gpus.append)
    before = torch.get_rng_state()
    with set_torch_seed(5):
        assert torch.random.initial_seed() == 5
    assert of_gpus == [5] * there
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize(
    ("threads", "load", "environment", "expected"),
    [(2, 9, {}, True), (1, 9, {}, False), (2, 0.5, {}, False), (2, 9, {"GOMP_SPINCOUNT": "1000"}, False)],
    ids=["busy", "one thread", "idle", "bounded"],
)
def test_threads_that_spin_are_told(
    threads: int,
    load: float,
    environment: dict[str, str],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0, 0))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(Path, "read_text", lambda self: "libgomp.so.1")
    cpu.choose("blas")
    assert ("Set GOMP_SPINCOUNT=1000" in caplog.text) == expected


@pytest.mark.parametrize("script", ["recipes/common.sh", "examples/steps.sh"])
def test_scripts_use_the_cores_and_bound_the_spinning(script: str) -> None:
    command = f"source {USER_DIR.parent / script}; echo $OMP_NUM_THREADS $GOMP_SPINCOUNT"
    for given, expected in (({}, f"{min(8, len(os.sched_getaffinity(0)))} 1000"), ({"OMP_NUM_THREADS": "3"}, "3 1000")):
        environment = {"PATH": os.environ["PATH"], **given}
        process = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
        assert process.stdout.split("\n")[0] == expected


def test_own_commands_bound_the_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in (("", "1000"), ("50", "50")):
        monkeypatch.setenv("GOMP_SPINCOUNT", given)
        if not given:
            monkeypatch.delenv("GOMP_SPINCOUNT")
        assert cli.main(["path"]) == 0
        assert os.environ["GOMP_SPINCOUNT"] == expected
