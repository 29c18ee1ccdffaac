"""Reads fairseq-train's checkpoints without running their code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from .files import read_file
from .settings import as_dict

NEVER_FILLED = "_float_tensor"  # the suffix of uninitialised buffers that fairseq registers and never reads


def read_checkpoint(path: Path, *, flag: str) -> dict[str, Any]:
    """Reads the checkpoint of a fairseq model or of ours onto the CPU, as torch saved it; errors name `flag`.

    fairseq's own reader rebuilds the settings and upgrades old files; a checkpoint saved from its result does not load.
    ValueError if the file is missing or damaged, could run code, or holds no model.
    """
    try:
        with path.open("rb") as file:
            state = read_file(file, str(path))
    except OSError as error:
        raise ValueError(f"{flag}: needs a checkpoint; got {path} ({error.strerror}). Use another path.") from None
    except ValueError as error:
        raise ValueError(f"{flag}: {error}") from None
    for key, entry in state["model"].items():
        if isinstance(entry, Tensor):
            state["model"][key] = entry.detach()  # of a parameter, which numpy does not take
    return state


def section_of(state: dict[str, Any], section: str) -> dict[str, Any]:
    """Returns the settings of a checkpoint's model or task as a dict; before fairseq 0.10 both are in one namespace."""
    config = state.get("cfg")
    settings = config.get(section) if isinstance(config, dict) else None
    settings = state.get("args") if settings is None else settings
    return as_dict(settings or {})


def require_finite(model: Mapping[str, Any], name: str, *, flag: str) -> None:
    """Raises ValueError, with `flag` and the model's origin, `name`, for the first entry with inf or nan."""
    for key, entry in model.items():
        if is_weight(entry) and not key.endswith(NEVER_FILLED) and not entry.isfinite().all():
            needs = "finite weights"
            got = f"{name} with {int((~entry.isfinite()).sum()):,} of {entry.numel():,} numbers of {key} inf or nan"
            raise ValueError(f"{flag}: needs {needs}; got {got}. Use a checkpoint from before the training diverged.")


def is_weight(entry: Any) -> bool:
    """Whether an entry of a state dict is a tensor of floating-point numbers; integers are counters."""
    return isinstance(entry, Tensor) and entry.is_floating_point()
