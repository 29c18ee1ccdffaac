"""Print versions, machine and mends, for a report of a fault."""

import argparse

from fairseq_tiedemb.results.environment import REPOSITORY, checkout, processor, system, versions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds nothing: the command has no arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Prints one line per fact; if torch or fairseq is missing or broken, its line says so."""
    del arguments
    for name, version in versions().items():
        print(f"{name + ':':<17}{version}")
    commit, dirty = checkout()
    if commit:
        print(f"{'commit:':<17}{commit}{', changed since' if dirty else ''}")
    print(f"{'folder:':<17}{REPOSITORY / 'fairseq_tiedemb'}")
    print(f"{'system:':<17}{system()}")
    print(f"{'processor:':<17}{processor()}")
    print(f"{'accelerators:':<17}{accelerators()}")
    print(f"{'products:':<17}{products()}")
    print(f"{'mended:':<17}{mends()}")
    return 0


def accelerators() -> str:
    """Describes the GPUs that torch sees, and torch's CUDA."""
    try:
        import torch
    except Exception as error:  # the report must work in a broken installation
        return f"torch does not import: {error}"
    if not torch.cuda.is_available():
        return f"none (CUDA of torch: {torch.version.cuda or 'none'})"
    names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
    return f"{names} (CUDA {torch.version.cuda})"


def products() -> str:
    """Describes the library that fairseq's commands choose for float32 products here, and what was measured."""
    try:
        from fairseq_tiedemb import fast_products
    except Exception as error:  # the report must work in a broken installation
        return f"torch does not import: {error}"
    return str(fast_products())


def mends() -> str:
    """Returns the names of `compat`'s entries, all of which are applied when fairseq is imported."""
    try:
        from fairseq_tiedemb import compat
    except Exception as error:  # the report must work in a broken installation
        return f"nothing, since fairseq does not import: {error}"
    return f"{len(compat.ENTRIES)} entries: {', '.join(entry.__name__ for entry in compat.ENTRIES)}"
