"""`fairseq-train --arch NAME`: refuses a name that no model has; with -h, shows the flags of the named model."""

import argparse
import difflib
from typing import Any

from fairseq import models, options

from ..wrapping import wrap


@wrap(options, "add_model_args")
def model_help(original: Any, parser: argparse.ArgumentParser) -> Any:
    """Let `fairseq-train -h` show the flags of `--arch`, of its task, criterion and optimizer, and their defaults.

    Without it: the first of two parsers prints the help, without a model's flags (options.py:137) and without defaults,
    and a mistyped `--arch` prints all names there are. Goes when only the second parser has the flag -h.
    """
    group = original(parser)
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            action.__class__ = HelpOfModel
        elif action.dest == "arch":
            action.__class__, action.choices = KnownModel, None
    return group


class KnownModel(argparse._StoreAction):
    """Stores the name of a registered model; ValueError for any other name."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, name: Any, *_: Any) -> None:
        if name not in models.ARCH_MODEL_REGISTRY:
            near = ", ".join(difflib.get_close_matches(name, models.ARCH_MODEL_REGISTRY, n=3)) or "another"
            raise ValueError(f"--arch: needs a model; got {name!r}. Use {near}; `fairseq-tiedemb arch` lists ours.")
        setattr(namespace, self.dest, name)


class HelpOfModel(argparse._HelpAction):
    """Prints the help at the second parse, when the parser has the model's flags."""

    first: argparse.Namespace | None = None

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *args: Any) -> None:
        if self.first is None:
            self.first = namespace  # the first parse goes on to fill it
            if getattr(namespace, "arch", None) is None:
                vars(namespace).pop("arch", None)  # without the attribute, fairseq does not look for a model
        if namespace is not self.first:
            show_defaults(parser, getattr(self.first, "arch", None))
            super().__call__(parser, namespace, *args)


def show_defaults(parser: argparse.ArgumentParser, arch: str | None) -> None:
    """Add the defaults to the help of fairseq-train's parser, which has the flags of the preset `arch`, if any."""
    known = {each.dest: each.default for each in parser._actions if argparse.SUPPRESS not in (each.dest, each.default)}
    defaults = model_defaults(arch, known) if arch else known
    for action in parser._actions:
        if action.dest in defaults:  # not -h itself, which has none
            action.default = defaults[action.dest]
            text = "" if action.default in (None, "") or action.default is False else f"(default: {action.default})"
            action.help = f"{action.help or ''} {text.replace('%', '%%')}".strip()


def model_defaults(arch: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults of fairseq-train's options for the preset `arch`, by name.

    `known` has the defaults that do not depend on a model.
    """
    args = argparse.Namespace(**known)
    models.ARCH_CONFIG_REGISTRY[arch](args)  # sets the preset's values
    config = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY.get(arch, arch))
    if config is not None:
        instance = config()
        of_model = {name: instance._get_default(name) for name in instance._get_all_attributes()}
        vars(args).update(of_model | vars(args))
    # "${task.tokens_per_sample}" stands for the value of another option.
    return {
        name: getattr(args, str(value).strip("${}").rpartition(".")[2], value)
        if str(value).startswith("${")
        else getattr(value, "value", value)
        for name, value in vars(args).items()
    }
