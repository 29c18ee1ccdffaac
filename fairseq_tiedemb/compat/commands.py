"""Explains wrong input to fairseq's commands, and applies the training recipes of presets."""

import argparse
import dataclasses
import functools
import logging
import re
from collections.abc import Callable
from typing import Any

from fairseq import models, options, tasks
from fairseq.dataclass import utils as dataclass_utils
from fairseq.registry import REGISTRIES
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from ._replace import replace

logger = logging.getLogger(__name__)


def data_folder() -> None:
    """Ask for the missing data folder in fairseq-hydra-train.

    Without it: TypeError, `argument of type 'NoneType' is not iterable` (utils.py:54), or another that depends on the
    task. Goes when the tasks' `data` is mandatory.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def setup_task(cfg: Any, **kwargs: Any) -> Any:
            if getattr(cfg, "data", "") is None:
                raise ValueError(
                    "task.data: needs the folder of fairseq-preprocess; got none. Use task.data=/path/to/data-bin "
                    "(fairseq-hydra-train)."
                )
            return original(cfg, **kwargs)

        return setup_task

    replace(tasks, "setup_task", make)


def models_fit_their_task() -> None:
    """Refuse a translation model with a language modelling task, as in fairseq-eval-lm, and the reverse.

    Without it: AttributeError on `supported_targets` or `encoder`, after the model is built
    (tasks/language_modeling.py:193), or hydra's errors about options that the task lacks (dataclass/utils.py:408).
    Goes when fairseq compares model and task.
    """

    def at_once(original: Callable[..., Any]) -> Callable[..., Any]:
        def override_module_args(args: argparse.Namespace) -> Any:
            _check_options_of_task(getattr(args, "task", None), getattr(args, "arch", None))
            return original(args)

        return override_module_args

    def when_built(original: Callable[..., Any]) -> Callable[..., Any]:
        def build_model(self: Any, args: Any, from_checkpoint: bool = False) -> Any:
            name = getattr(args, "_name", None) or getattr(args, "arch", None)
            _check_fit(type(self), name, from_checkpoint=from_checkpoint)
            return original(self, args, from_checkpoint)

        return build_model

    replace(dataclass_utils, "override_module_args", at_once)  # the first function to convert a command's options
    for task in (LanguageModelingTask, TranslationTask):
        replace(task, "build_model", when_built)


def _check_options_of_task(task: str | None, arch: str | None) -> None:
    """Raise ValueError if the model takes defaults from options that the task lacks."""
    model = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY.get(arch))
    config = tasks.TASK_DATACLASS_REGISTRY.get(task)
    if model is None or config is None:
        return
    taken = re.findall(r"\$\{task\.(\w+)\}", " ".join(str(field.default) for field in dataclasses.fields(model)))
    lacking = sorted(set(taken) - {field.name for field in dataclasses.fields(config)})
    if lacking:
        _check_fit(tasks.TASK_REGISTRY[task], arch)
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in lacking)
        raise ValueError(f"--arch {arch}: needs a task with {flags}; got --task {task}. Use the task of such models.")


def _check_fit(task: type, name: str | None, *, from_checkpoint: bool = False) -> None:
    """Raise ValueError if either the task or the model is for language modelling, and the other for translation."""
    model = models.ARCH_MODEL_REGISTRY.get(name) or models.MODEL_REGISTRY.get(name)
    if model is None:
        return
    is_language_model = hasattr(model, "supported_targets")
    if issubclass(task, LanguageModelingTask) and not is_language_model:
        flag, remedy = ("--path", "fairseq-generate") if from_checkpoint else ("--arch", "--task translation")
        raise ValueError(
            f"{flag}: needs a language model; got {name}, another kind of model. Use {remedy} for a translation model."
        )
    if issubclass(task, TranslationTask) and is_language_model:
        of_model = getattr(model, "recipe", {}).get("task", "language_modeling")
        flag, remedy = ("--path", "fairseq-eval-lm") if from_checkpoint else ("--arch", f"--task {of_model}")
        raise ValueError(f"{flag}: needs a translation model; got {name}, a language model. Use {remedy} for it.")


def recipes_are_defaults() -> None:
    """Take a preset's task, criterion, optimizer, schedule and their options from its recipe by default.

    Without it: fairseq takes these from the command line alone (options.py:138), before it asks the model for its
    options, so that the options of a recipe's optimizer are unknown. Goes when a model may define how it is trained.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def parse_args_and_arch(
            parser: argparse.ArgumentParser,
            input_args: Any = None,
            parse_known: bool = False,
            suppress_defaults: bool = False,
            modify_parser: Callable[[argparse.ArgumentParser], Any] | None = None,
        ) -> Any:
            def with_recipe(parser: argparse.ArgumentParser) -> None:
                # Called twice: before fairseq reads the choices, and after it has added the options of the chosen.
                parser.set_defaults(**_recipe(input_args))
                if modify_parser is not None:
                    modify_parser(parser)

            return original(parser, input_args, parse_known, suppress_defaults, with_recipe)

        return parse_args_and_arch

    replace(options, "parse_args_and_arch", make)


def _recipe(input_args: Any) -> dict[str, Any]:
    """Return the recipe of a command's model, without the optimizer's options if the command sets another optimizer.

    Criterions and schedules share options (`label_smoothing`, `warmup_updates`), but an optimizer's momentum is no
    default for another optimizer. If the model's `recipe_yields`, setting an optimizer disables the whole recipe.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--arch", "-a")
    parser.add_argument("--optimizer")
    given = parser.parse_known_args(input_args)[0]
    model = models.ARCH_MODEL_REGISTRY.get(given.arch)
    recipe = getattr(model, "recipe", {})
    if given.optimizer is not None and getattr(model, "recipe_yields", False):
        _say_that_no_recipe_is_used(given.arch)
        return {}
    if given.optimizer in (None, recipe.get("optimizer")) or "optimizer" not in recipe:
        return recipe
    of_recipe = argparse.ArgumentParser(add_help=False)
    REGISTRIES["optimizer"]["registry"][recipe["optimizer"]].add_args(of_recipe)
    left_out = {action.dest for action in of_recipe._actions}
    return {name: value for name, value in recipe.items() if name not in left_out}


@functools.cache  # a command parses its options more than once
def _say_that_no_recipe_is_used(arch: str) -> None:
    logger.info(
        f"--optimizer disables the recipe of {arch}: criterion, batch size, clipping, schedule and number of updates "
        f"are the command's own (`fairseq-tiedemb arch {arch}` shows the recipe)"
    )


def interactive_alignment() -> None:
    """Refuse `fairseq-interactive --print-alignment soft` on the command line.

    Without it: ValueError, `too many values to unpack`, at the first sentence: the command prints hard alignments only
    (fairseq_cli/interactive.py:287). Goes when it prints probabilities as fairseq-generate does.
    """

    def pairs_only(text: str) -> str:
        if text == "soft":
            raise argparse.ArgumentTypeError(
                "fairseq-interactive needs hard alignment; got soft. Use fairseq-generate for soft alignment."
            )
        return text

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_interactive_args(parser: Any) -> None:
            original(parser)
            for action in parser._actions:
                if action.dest == "print_alignment":
                    action.type = pairs_only

        return add_interactive_args

    replace(options, "add_interactive_args", make)
