"""How fairseq's commands use a CPU: the products, threads, memory of freed tensors, seeds."""

import argparse
import ctypes
import dataclasses
import functools
import logging
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq import options, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from ..bfloat16 import multiply_in_float32
from ..products import EXACT, VARIABLE, WAYS, Products, even_linear, fast_products, use
from ..wrapping import wrap

logger = logging.getLogger(__name__)

# What this process multiplies by, once a command has chosen.
_in_use: Products | None = None


@wrap(options, "parse_args_and_arch")
def commands_choose_products(original: Any, parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
    """Choose the library of float32 products on a CPU when a command begins; `--products` chooses by hand.

    Without it: torch takes its BLAS, half as fast as oneDNN on some processors. Goes when torch chooses.
    """
    if "--products" not in parser._option_string_actions:
        about = "library of float32 matrix products on the CPU: torch's blas, onednn, or the faster one that is exact "
        about += f"on this processor (auto, the default); the environment variable {VARIABLE} chooses, too"
        parser.add_argument("--products", choices=("auto", *WAYS), help=about)
    parsed = original(parser, *args, **kwargs)
    command = parsed[0] if isinstance(parsed, tuple) else parsed
    if hasattr(command, "products"):
        choose(command.products)
        del command.products  # a model of fairseq's would save it with its own options
    return parsed


@wrap(distributed_utils, "call_main")
def processes_use_what_is_chosen(original: Any, cfg: Any, main: Callable[..., Any], **kwargs: Any) -> Any:
    """Choose in each process what the command's first one has chosen; see `commands_choose_products`."""
    if _in_use is not None:
        main = functools.partial(_run, _in_use, main)  # also in processes that it starts
    return original(cfg, main, **kwargs)


@wrap(Trainer, "__init__")
def trainings_choose_products(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> None:
    """Choose at the latest when the trainer is built; see `commands_choose_products`."""
    if _in_use is None:  # fairseq-hydra-train, which imports the plugin when it has begun
        choose(None)
    original(self, *args, **kwargs)
    if self.cfg.common.bf16 and not self.cuda and multiply_in_float32():
        logger.warning("--bf16: this processor is faster in float32. Large matrices are multiplied in it, and rounded.")


@wrap(Trainer, "state_dict")
def products_are_saved(original: Any, self: Trainer) -> dict[str, Any]:
    """Save which library multiplies in checkpoints, and resume with it unless the command chooses another by hand.

    Without it: libraries differ in the last digits, and a resumed training may end elsewhere than an uninterrupted one.
    Goes with `commands_choose_products`.
    """
    state = original(self)
    if _in_use is not None:
        state["extra_state"]["products"] = _in_use.way
    return state


@wrap(Trainer, "load_checkpoint")
def resumed_products(
    original: Any, self: Trainer, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
) -> Any:
    """Resume with the library of the training, if it is exact here and none is chosen; see `products_are_saved`."""
    global _in_use
    extra_state = original(self, filename, reset_optimizer, *args, **kwargs)
    way = None if extra_state is None or reset_optimizer else extra_state.get("products")
    if _in_use is None or _in_use.by_hand or way not in WAYS or way == _in_use.way:
        return extra_state
    if _in_use.errors.get(way, 0) > EXACT:
        logger.warning(
            f"float32 products on the CPU: {way}, as in the training before, is not exact on this processor; training "
            f"goes on with {_in_use.way}, which gives other last digits. --products {way} goes on as before."
        )
        return extra_state
    use(way)
    _in_use = dataclasses.replace(_in_use, way=way)
    logger.info(f"float32 products on the CPU: {way}, as in the training before")
    return extra_state


@wrap(utils.set_torch_seed, "__init__")
def seeds_of_the_cpu_alone(original: Any, self: Any, seed: int) -> None:
    """Seed only the CPU's generator where there is no other device; fairseq seeds at each update.

    Without it: torch keeps each seed for three kinds of devices until one is first used, with a trace of the stack,
    which takes half a millisecond. Goes when torch does so only where there are such devices.
    """
    if torch.accelerator.is_available():
        return original(self, seed)
    with mock.patch.object(torch, "manual_seed", torch.default_generator.manual_seed):
        return original(self, seed)


@wrap(Trainer, "train_step")
def products_have_even_rows(original: Any, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    """Let linear layers multiply numbers of rows that recur, by ``even_linear``, in trainings in bfloat16 on a CPU.

    Without it: oneDNN makes a kernel for nearly every batch and layer, since batches differ in their number of tokens,
    which takes a fifth to a fourth of an update of translation. Goes when one kernel serves all numbers of rows.
    """
    if self.cuda or not self.cfg.common.bf16:
        return original(self, *args, **kwargs)
    with mock.patch.object(torch.nn.functional, "linear", even_linear):
        return original(self, *args, **kwargs)


def choose(way: str | None) -> None:
    """Choose the library for this command by the value of `--products`, and log it; warn of threads that spin."""
    global _in_use
    # By themselves oneDNN and torch's layer above it keep 1,024 kernels each. Where lengths differ from batch to batch
    # these are gigabytes, and few are used again. Both read their limit at the first product.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "256")
    os.environ.setdefault("LRU_CACHE_CAPACITY", "32")  # torch's
    before, chosen = _in_use, fast_products(way)
    _in_use = chosen if chosen.rates or chosen.by_hand else None  # None with a GPU
    if _in_use == before:  # fairseq-validate parses its options twice
        return
    keep_freed_memory()
    logger.info(f"float32 products on the CPU: {_in_use}; --products chooses by hand")
    if threads_spin():
        logger.warning(
            f"{torch.get_num_threads()} threads on a busy machine: they spin while they wait for each other, which can "
            "make training 20 times slower. Set GOMP_SPINCOUNT=1000 in the environment, or OMP_NUM_THREADS=1."
        )


def keep_freed_memory() -> None:
    """Let glibc keep the memory of freed tensors of up to 32 MB (its largest limit) for the next ones.

    By itself it hands the end of its heap back to the system, and each step asks for it again by thousands of page
    faults: a tenth of the time of a step in bfloat16.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # of malloc.h
        ctypes.CDLL(None).mallopt(trim_threshold, 2**31 - 1)
        ctypes.CDLL(None).mallopt(mmap_threshold, 32 << 20)


def threads_spin() -> bool:
    """Whether several threads of GNU's OpenMP, which wait by spinning, compete with other processes for the cores."""
    if torch.get_num_threads() == 1 or {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        return False
    libraries = Path("/proc/self/maps")
    return libraries.exists() and "libgomp" in libraries.read_text() and os.getloadavg()[0] > (os.cpu_count() or 1)


def _run(products: Products, main: Callable[..., Any], cfg: Any, **kwargs: Any) -> Any:
    """Run a command's `main` with the library that its first process has chosen."""
    global _in_use
    _in_use = products
    use(products.way)
    keep_freed_memory()
    return main(cfg, **kwargs)
