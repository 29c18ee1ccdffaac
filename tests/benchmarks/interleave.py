"""Rounds in which every contestant runs once, so that what else the machine does hits all of them alike."""

import contextlib
import ctypes
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from fairseq_tiedemb import products

# The methods of Liu et al. (2020), which the tables of speed compare.
LIUS_METHODS = ("plain", "l2-input", "square-output", "distance", "cosine")
PR_SET_THP_DISABLE = 41  # of linux/prctl.h
# After the name of a contestant that multiplies in float32 and by torch's own choice of library.
SHIPPED = ", as torch ships"


@contextlib.contextmanager
def as_torch_ships() -> Iterator[None]:
    """Multiplies by torch's BLAS; new memory comes in small pages."""
    _turn_huge_pages_off(1)
    try:
        with products.multiplying_by("blas"):
            yield
    finally:
        _turn_huge_pages_off(0)


def _turn_huge_pages_off(off: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, off, 0, 0, 0)


def interleave(contestants: Mapping[str, Callable[[], object]], *, rounds: int = 7) -> dict[str, list[float]]:
    """Runs each contestant once a round, after one unmeasured round.

    Args:
        contestants: what to run, by name. One whose name ends in ``SHIPPED`` runs ``as_torch_ships``.
        rounds: measured rounds.

    Returns:
        Process CPU seconds of every round, by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for measured in range(-1, rounds):
        for name, run in contestants.items():
            with as_torch_ships() if name.endswith(SHIPPED) else products.multiplying_by(products.in_use()):
                start = time.process_time()
                run()
                seconds_of_run = time.process_time() - start
            if measured >= 0:
                seconds[name].append(seconds_of_run)
    return seconds


def ratio(seconds: Mapping[str, list[float]], slower: str, faster: str) -> str:
    """How many times faster ``faster`` is than ``slower``: median of the rounds' ratios, and their range."""
    ratios = [a / b for a, b in zip(seconds[slower], seconds[faster], strict=True)]
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
