"""Presets whose numbers stand in ``config/NAME.yaml``, for ``fairseq-train --arch NAME`` and fairseq-hydra-train alike.

The file says what the model's sizes are and how it is trained: with ``--arch NAME``, a preset of ``register_preset``
gets task, criterion, optimiser and schedule from it too, all overridable; compat's ``recipes_are_defaults`` sees to it.
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
# Sections of a file that say how to train.
TRAINING = ("common", "task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset", "checkpoint")


def register_preset(
    model: type[BaseFairseqModel], config: type[FairseqDataclass], name: str, about: str, **attributes: Any
) -> None:
    """Registers a model once more, with the sizes and the recipe of ``config/NAME.yaml``.

    Args:
        model: whose subclass the preset is.
        config: the model's options.
        name: of the preset.
        about: what it is, in a line.
        attributes: of the class, such as ``ties``.
    """
    attributes |= {"__doc__": about, "__module__": model.__module__, "recipe": training_options(name)}
    preset = register_model(name, dataclass=with_sizes(config, name))(type(name, (model,), attributes))
    setattr(sys.modules[model.__module__], name, preset)  # where pickle looks for it


def with_sizes(config: type[FairseqDataclass], preset: str, **defaults: Any) -> type[FairseqDataclass]:
    """A config class whose defaults are the model's options in ``config/PRESET.yaml``.

    They belong here and not into a recipe, which only the command line knows: fairseq-hydra-train and Python take them
    from the class.

    Args:
        config: the model's config.
        preset: whose file it is.
        defaults: more of them, by field, which the file leaves out.
    """
    defaults |= {name: value for name, value in _sections(preset)["model"].items() if name != "_name"}
    fields = {each.name: each for each in dataclasses.fields(config)}
    return dataclasses.make_dataclass(
        f"{preset}_config",
        [
            (name, fields[name].type, dataclasses.field(default=value, metadata=fields[name].metadata))
            for name, value in defaults.items()
        ],
        bases=(config,),
    )


def training_options(preset: str) -> dict[str, Any]:
    """How ``config/PRESET.yaml`` trains: values by option (``lr_shrink``), "task", "criterion" and others among them.

    What the file leaves to the user (``???``, ``null``) or takes from elsewhere (``${...}``) is left out, and
    ``user_dir``, which the command has by then.
    """
    return {
        section if name == "_name" else name: value
        for section in TRAINING
        for name, value in _sections(preset).get(section, {}).items()
        if value is not None and name != "user_dir" and not str(value).startswith(("???", "${"))
    }


def _sections(preset: str) -> dict[str, Any]:
    """``config/PRESET.yaml`` and the files that its ``defaults`` name, merged as hydra does: the last prevails."""
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
    # Compiled, where it is: hydra's own reader takes a third of the plugin's start. It reads the same (the tests see to
    # it) as long as numbers are those of YAML: 1.0e-6, where hydra takes 1e-6 too.
    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
