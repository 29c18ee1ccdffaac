"""What commands are given, and what they take for given: a preset's recipe.

A reason where fairseq ends in an error of its own inside.
"""

import argparse
import functools
import logging
from collections.abc import Callable
from typing import Any

from fairseq import models, options, tasks
from fairseq.registry import REGISTRIES
from fairseq.tasks.language_modeling import LanguageModelingTask

from ._replace import replace

logger = logging.getLogger(__name__)


def data_folder() -> None:
    """Ask for the data where fairseq-hydra-train was given none.

    Without it: TypeError, `argument of type 'NoneType' is not iterable` (utils.py:54) or one that depends on the task.
    Goes when the tasks' `data` is mandatory.
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


def language_models_only() -> None:
    """Refuse a translation model in fairseq-eval-lm, and in training with the task of a language model.

    Without it: AttributeError on `supported_targets`, after the model is built (tasks/language_modeling.py:193).
    Goes when fairseq names the model.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def build_model(self: Any, args: Any, from_checkpoint: bool = False) -> Any:
            name = getattr(args, "_name", None) or getattr(args, "arch", None)
            model = models.ARCH_MODEL_REGISTRY.get(name) or models.MODEL_REGISTRY.get(name)
            if model is not None and not hasattr(model, "supported_targets"):
                flag, remedy = (
                    ("--arch", "--task translation") if not from_checkpoint else ("--path", "fairseq-generate")
                )
                raise ValueError(
                    f"{flag}: needs a language model; got {name}, which is none. Use {remedy} for one that translates."
                )
            return original(self, args, from_checkpoint)

        return build_model

    replace(LanguageModelingTask, "build_model", make)


def recipes_are_defaults() -> None:
    """Let a preset's recipe say task, criterion, optimiser and schedule where the command line does not, with options.

    Without it: fairseq asks the command line alone which these are (options.py:138), before it asks the model for its
    options, so that those of a recipe's optimiser are unknown. Goes when a model may say how it is trained.
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
                # Called before fairseq asks what is chosen, and when the options of what is chosen are there.
                parser.set_defaults(**_recipe(input_args))
                if modify_parser is not None:
                    modify_parser(parser)

            return original(parser, input_args, parse_known, suppress_defaults, with_recipe)

        return parse_args_and_arch

    replace(options, "parse_args_and_arch", make)


def _recipe(input_args: Any) -> dict[str, Any]:
    """Of the model that a command names, if it brings one; without its optimiser's options if the command has another.

    Criterions and schedules have numbers in common (`label_smoothing`, `warmup_updates`); the momentum of one optimiser
    is no default of another's. Where the model's `recipe_yields`, an optimiser in the command leaves nothing of it.
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


@functools.cache  # a command asks more than once
def _say_that_no_recipe_is_used(arch: str) -> None:
    logger.info(
        f"--optimizer is given: nothing of the recipe of {arch} is used; criterion, batch, clipping, schedule and end "
        f"are those of the command (`fairseq-tiedemb arch {arch}` shows the recipe)"
    )


def interactive_alignment() -> None:
    """Refuse `fairseq-interactive --print-alignment soft` on the command line.

    Without it: ValueError, `too many values to unpack`, at the first sentence: it prints pairs of words only
    (fairseq_cli/interactive.py:287). Goes when it prints probabilities as fairseq-generate does.
    """

    def pairs_only(text: str) -> str:
        if text == "soft":
            raise argparse.ArgumentTypeError(
                "fairseq-interactive needs hard, pairs of words; got soft. Use fairseq-generate for soft alignment."
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
