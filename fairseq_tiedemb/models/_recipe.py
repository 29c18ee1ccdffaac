"""Presets that bring a whole recipe: ``--arch NAME`` sets task, criterion, optimiser and schedule, all overridable."""

import argparse
import dataclasses
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY


def add_recipe(parser: argparse.ArgumentParser, recipe: dict[str, Any]) -> None:
    """Makes a recipe the parser's defaults.

    fairseq adds the options of the task, criterion and scheduler that the user names on the command line. Those of a
    recipe it would not know, so they are added here, while the model's own options are; what is there twice is dropped
    by ``gen_parser_from_dataclass``.

    Args:
        parser: of the command.
        recipe: values by option name (``lr_shrink``), with "task", "criterion" and "lr_scheduler" among them.
    """
    configs = [TASK_DATACLASS_REGISTRY[recipe["task"]]]
    configs += [
        REGISTRIES[name]["dataclass_registry"][recipe[name]] for name in ("criterion", "lr_scheduler") if name in recipe
    ]
    for config in configs:
        gen_parser_from_dataclass(parser, _without_data(config))
    parser.set_defaults(**recipe)


def _without_data(config: type[FairseqDataclass]) -> FairseqDataclass:
    """A config whose positional ``data`` is left to the task that fairseq adds."""

    class Options(config):
        def _get_all_attributes(self) -> list[str]:
            return [name for name in super()._get_all_attributes() if name != "data"]

    return Options()


def with_defaults(config: type[FairseqDataclass], name: str, **defaults: Any) -> type[FairseqDataclass]:
    """A config class with other defaults, for the presets of a model.

    Defaults of sizes belong here and not into a recipe, which only the command line knows: fairseq-hydra-train and
    Python take them from the class.

    Args:
        config: the model's config.
        name: of the new class.
        defaults: by field.
    """
    fields = {each.name: each for each in dataclasses.fields(config)}
    return dataclasses.make_dataclass(
        name,
        [
            (key, fields[key].type, dataclasses.field(default=value, metadata=fields[key].metadata))
            for key, value in defaults.items()
        ],
        bases=(config,),
    )
