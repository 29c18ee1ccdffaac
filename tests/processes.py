"""Two processes of a test."""

from collections.abc import Callable
from pathlib import Path

import torch


def in_two_processes(check: Callable[[int], None], folder: Path) -> None:
    """Run `check(rank)` in two processes that share a gloo group; forked, so that nothing is imported again."""
    torch.multiprocessing.start_processes(_in_group, (check, folder / "store"), nprocs=2, start_method="fork")


def _in_group(rank: int, check: Callable[[int], None], store: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    check(rank)
    torch.distributed.destroy_process_group()
