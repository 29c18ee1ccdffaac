"""Print versions, machine and mends, for a report of a fault."""

import argparse

from fairseq_tiedemb.results.environment import REPOSITORY, checkout, processor, system, versions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds nothing: the command has no arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Prints one line per fact; if torch or fairseq is missing or broken, its line says so."""
    del arguments
    commit, dirty = checkout()
    facts = {
        **versions(),
        **({"commit": f"{commit}{', changed since' if dirty else ''}"} if commit else {}),
        "folder": REPOSITORY / "fairseq_tiedemb",
        "system": system(),
        "processor": processor(),
        "accelerators": accelerators(),
        "products": products(),
        "mended": mends(),
    }
    for name, fact in facts.items():
        print(f"{name + ':':<17}{fact}")


def accelerators() -> str:
    """Describes the GPUs that torch sees, and torch's CUDA."""
    try:
        import torch
    except Exception as error:  # the report must work in a broken installation
        return f"torch does not import: {error}"
    names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    return f"{names} (CUDA {torch.version.cuda})" if names else f"none (CUDA of torch: {torch.version.cuda or 'none'})"


def products() -> str:
    """Describes the library that fairseq's commands choose for float32 products here, and what was measured."""
    try:
        from fairseq_tiedemb import fast_products
    except Exception as error:  # the report must work in a broken installation
        return f"torch does not import: {error}"
    return str(fast_products())


def mends() -> str:
    """Returns the names of `compat`'s entries, all of which its import applies."""
    try:
        from fairseq_tiedemb import compat
    except Exception as error:  # the report must work in a broken installation
        return f"nothing, since fairseq does not import: {error}"
    return f"{len(compat.ENTRIES)} entries: {', '.join(entry.__name__ for entry in compat.ENTRIES)}"
