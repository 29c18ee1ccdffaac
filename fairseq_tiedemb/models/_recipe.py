"""Presets defined by ``config/NAME.yaml``, for ``fairseq-train --arch NAME`` and for fairseq-hydra-train.

The file holds the model's sizes and its training recipe. With ``--arch NAME`` the recipe becomes the defaults of task,
criterion, optimiser and schedule, through training's ``recipes_are_defaults``; flags override all of it.
"""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import yaml
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel, register_model

CONFIG = Path(__file__).resolve().parent.parent / "config"
# Sections of a file with the training recipe.
TRAINING = ("common", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset", "checkpoint")


def register_preset(
    model: type[BaseFairseqModel], config: type[FairseqDataclass], name: str, about: str, *turned_on: str, **more: Any
) -> None:
    """Registers a preset: a model with the sizes and the recipe of ``config/NAME.yaml``.

    It is a class of its own, because fairseq keeps the options of a model on its class. ``turned_on`` are options that
    the preset turns on, whatever the flags say; ``more`` are attributes of the class.
    """
    more |= {"__doc__": about, "__module__": model.__module__, "turned_on": turned_on, "recipe": training_options(name)}
    preset = register_model(name, dataclass=with_sizes(config, name))(type(name, (model,), more))
    setattr(sys.modules[model.__module__], name, preset)  # pickle looks classes up by module


def with_sizes(config: type[FairseqDataclass], preset: str, **defaults: Any) -> type[FairseqDataclass]:
    """A config class whose defaults are the model options in ``config/PRESET.yaml``, and then ``defaults``.

    Only the command line reads recipes; fairseq-hydra-train and Python take sizes from the class.
    """
    defaults |= {name: value for name, value in _sections(preset)["model"].items() if name != "_name"}
    fields = {entry.name: entry for entry in dataclasses.fields(config)}
    sized = [
        (name, fields[name].type, dataclasses.field(default=value, metadata=fields[name].metadata))
        for name, value in defaults.items()
    ]
    return dataclasses.make_dataclass(f"{preset}_config", sized, bases=(config,))


def training_options(preset: str) -> dict[str, Any]:
    """The training options of ``config/PRESET.yaml`` by name (``lr_shrink``), with "task", "criterion" and others.

    Leaves out ``user_dir``, values for the user to set (``???``, ``null``) and interpolations (``${...}``).
    """
    return {
        section if name == "_name" else name: value
        for section in TRAINING
        for name, value in _sections(preset).get(section, {}).items()
        if value is not None and name != "user_dir" and not str(value).startswith(("???", "${"))
    }


def _sections(preset: str) -> dict[str, Any]:
    """``config/PRESET.yaml`` merged with the files in its ``defaults`` as hydra merges them: the last value wins."""
    own = _read(CONFIG / f"{preset}.yaml")
    merged: dict[str, Any] = {}
    for entry in own["defaults"]:
        groups = {} if entry == "_self_" else entry
        for file in [_read(CONFIG / group / f"{name}.yaml") for group, name in groups.items()] or [own]:
            for section, values in file.items():
                if section != "defaults":
                    merged[section] = {**merged.get(section, {}), **values}
    return merged


@functools.cache
def _read(path: Path) -> Any:
    # The compiled loader if available: hydra's own takes a third of the plugin's start-up time. Both agree (a test
    # checks it) if numbers follow YAML: 1.0e-6, where hydra also takes 1e-6.
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
