"""The settings of a checkpoint, which fairseq saves in several forms."""

from argparse import Namespace
from collections.abc import Mapping
from typing import Any


def settings_of(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of a checkpoint by section: model, task, criterion, ...

    Args:
        state: the checkpoint as torch saved it.
        name: of its file, for errors.

    Raises:
        ValueError: if it has none, being older than fairseq 0.10.
    """
    settings = state.get("cfg")
    if not isinstance(settings, dict):
        raise ValueError(
            f"CHECKPOINT: needs settings of fairseq 0.10 or newer; got {name}, which has none. Train again."
        )
    return settings


def as_dict(options: Any) -> dict[str, Any]:
    """The options of a section, which fairseq saves as a Namespace or as a dictionary."""
    return dict(vars(options)) if isinstance(options, Namespace) else dict(options)
