"""The settings of a checkpoint, which fairseq saves in several forms."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from typing import Any


def settings_of(state: Mapping[str, Any], name: str, *, sections: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings of a checkpoint by section: model, task, criterion, ...

    Args:
        state: the checkpoint as torch saved it.
        name: of its file, for errors.
        sections: those that it must have, beside model and task.

    Raises:
        ValueError: if it has none, or lacks a section.
    """
    settings = state.get("cfg")
    if settings is None and isinstance(state.get("args"), Namespace):
        settings = _of_older(state, name)
    found = settings if isinstance(settings, dict) else {}
    for section in ("model", "task", *sections):
        if not isinstance(found.get(section), Namespace | Mapping):
            raise ValueError(
                f"CHECKPOINT: needs settings of model and training, as fairseq-train saves them; got {name}, which has "
                f"none of its {section}. Use the checkpoint of the training as it was saved."
            )
    return found


def _of_older(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings that fairseq makes of those of its versions before 0.10, when it loads such a checkpoint."""
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    small = {key: value for key, value in state.items() if key not in ("model", "last_optimizer_state", "optimizer")}
    try:
        upgraded = checkpoint_utils._upgrade_state_dict(copy.deepcopy({"optimizer": None, **small}))["cfg"]
    except Exception as error:  # whatever fairseq does not find
        raise ValueError(
            f"CHECKPOINT: needs settings that fairseq can upgrade; got {name} ({type(error).__name__}: {error}). Use "
            "the checkpoint of the training as it was saved."
        ) from error
    return dict(OmegaConf.to_container(upgraded))  # type: ignore[arg-type]


def as_dict(options: Any) -> dict[str, Any]:
    """The options of a section, which fairseq saves as a Namespace or as a dictionary."""
    return dict(vars(options)) if isinstance(options, Namespace) else dict(options)
