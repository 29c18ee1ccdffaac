"""`fairseq-train --arch NAME -h`: the flags of the model that is named."""

import argparse
from collections.abc import Callable
from typing import Any

from fairseq import models, options

from ._replace import replace


def model_help() -> None:
    """Let `fairseq-train -h` show the flags of `--arch`, of its task, criterion and optimiser, and their defaults.

    Without it: the first of two parsers answers, which knows no model yet (options.py:137), and no default is shown.
    Goes when the parser of the second parse has the flag -h alone.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_model_args(parser: argparse.ArgumentParser) -> Any:
            group = original(parser)
            for action in parser._actions:
                if isinstance(action, argparse._HelpAction):
                    action.__class__ = HelpOfModel
            return group

        return add_model_args

    replace(options, "add_model_args", make)


class HelpOfModel(argparse._HelpAction):
    """Waits for the second parse, when the flags of the model are there."""

    first: argparse.Namespace | None = None

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *args: Any) -> None:
        if self.first is None:
            self.first = namespace  # which will have the rest of the first parse
            if getattr(namespace, "arch", None) is None:
                vars(namespace).pop("arch", None)  # then fairseq asks no model for its flags
        if namespace is self.first:
            return
        show_defaults(parser, getattr(self.first, "arch", None))
        super().__call__(parser, namespace, *args)


def show_defaults(parser: argparse.ArgumentParser, arch: str | None) -> None:
    """Make the parser's help name each default.

    Args:
        parser: of fairseq-train, with the flags of the model.
        arch: the model's preset, if one is named.
    """
    known = {
        action.dest: action.default
        for action in parser._actions
        if action.default is not argparse.SUPPRESS and action.dest != argparse.SUPPRESS
    }
    defaults = {**known, **(model_defaults(arch, known) if arch else {})}
    for action in parser._actions:
        if action.dest not in defaults or isinstance(action, argparse._HelpAction):
            continue
        action.default = defaults[action.dest]
        off = action.default is None or action.default is False or action.default == ""
        text = "" if off else f"(default: {action.default})"
        action.help = f"{action.help or ''} {text.replace('%', '%%')}".strip()


def model_defaults(arch: str, known: dict[str, Any]) -> dict[str, Any]:
    """What fairseq-train takes for the options of a model that nobody gives, by name.

    Args:
        arch: the model's preset.
        known: the options that have a default without a model.
    """
    args = argparse.Namespace(**known)
    models.ARCH_CONFIG_REGISTRY[arch](args)  # of a preset
    config = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY.get(arch, arch))
    if config is not None:
        instance = config()
        for name in instance._get_all_attributes():
            if not hasattr(args, name):
                setattr(args, name, instance._get_default(name))
    # "${task.tokens_per_sample}": that of another option.
    return {
        name: getattr(args, str(value).strip("${}").rpartition(".")[2], value)
        if str(value).startswith("${")
        else getattr(value, "value", value)
        for name, value in vars(args).items()
    }
