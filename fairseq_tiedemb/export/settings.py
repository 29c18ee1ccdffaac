"""Reads the settings of a checkpoint, which fairseq saves in several forms, and checks that it has weights."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fairseq_tiedemb.checkpoints.reading import is_weight, require_finite


def checked_settings(state: Mapping[str, Any], name: str, *, sections: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns a checkpoint's settings by section: model, task, and required `sections` as dicts.

    Raises ValueError, which names the file, if it lacks a section, has no weights, or has one that is not finite.
    """
    settings = state.get("cfg")
    if settings is None and isinstance(state.get("args"), Namespace):
        settings = _of_older(state, name)
    by_section = dict(settings) if isinstance(settings, dict) else {}
    for section in ("model", "task", *sections):
        options = by_section.get(section)
        by_section[section] = vars(options) if isinstance(options, Namespace) else options
        if not isinstance(by_section[section], Mapping):
            raise ValueError(
                f"CHECKPOINT: needs settings of model and training, as fairseq-train saves them; got {name}, which has "
                f"none of its {section}. Use the checkpoint of the training as it was saved."
            )
    if not any(map(is_weight, state["model"].values())):
        raise ValueError(f"CHECKPOINT: needs a model; got {name}, whose model has no weights. Use another.")
    require_finite(state["model"], name, flag="CHECKPOINT")
    return by_section


def _of_older(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Upgrades the settings of a fairseq before 0.10, as fairseq does when it loads such a checkpoint."""
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    import fairseq_tiedemb.plugin  # noqa: F401 (or fairseq would run settings as code)

    small = {key: value for key, value in state.items() if key not in ("model", "last_optimizer_state", "optimizer")}
    try:
        upgraded = checkpoint_utils._upgrade_state_dict(copy.deepcopy({"optimizer": None, **small}))["cfg"]
    except Exception as error:  # fairseq raises errors of any class
        raise ValueError(
            f"CHECKPOINT: needs settings that fairseq can upgrade; got {name} ({type(error).__name__}: {error}). Use "
            "the checkpoint of the training as it was saved."
        ) from error
    return dict(OmegaConf.to_container(upgraded))  # type: ignore[arg-type]
