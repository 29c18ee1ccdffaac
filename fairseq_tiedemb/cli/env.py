"""Print versions, machine and fixes to fairseq, for bug reports."""

import platform
import sys
from collections.abc import Callable

import fairseq_tiedemb
from fairseq_tiedemb.results.environment import REPOSITORY, checkout, processor, versions


def run(_: object) -> None:
    """Prints one line per fact; if torch or fairseq is missing or broken, its line says so."""
    commit, dirty = checkout()
    facts = {
        **versions(),
        **({"commit": f"{commit}{', changed since' if dirty else ''}"} if commit else {}),
        "folder": REPOSITORY / "fairseq_tiedemb",
        "system": f"{platform.platform()}, {sys.executable}",
        "processor": processor(),
        "accelerators": unless_broken("torch", accelerators),
        # The library that fairseq's commands choose for those in float32 here, and what was measured.
        "products": unless_broken("torch", lambda: str(fairseq_tiedemb.fast_products())),
        "mended": unless_broken("nothing, since fairseq", mends),
    }
    for name, fact in facts.items():
        print(f"{name + ':':<17}{fact}")


def unless_broken(name: str, describe: Callable[[], str]) -> str:
    """Returns a description, or why there is none: the report must work in a broken installation."""
    try:
        return describe()
    except Exception as error:
        return f"{name} does not import: {error}"


def accelerators() -> str:
    """Describes the GPUs that torch sees, and torch's CUDA."""
    import torch

    names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    return f"{names} (CUDA {torch.version.cuda})" if names else f"none (CUDA of torch: {torch.version.cuda or 'none'})"


def mends() -> str:
    """Returns the names of `compat`'s entries, all of which its import applies."""
    from fairseq_tiedemb import compat

    return f"{len(compat.ENTRIES)} entries: {', '.join(entry.__name__ for entry in compat.ENTRIES)}"
