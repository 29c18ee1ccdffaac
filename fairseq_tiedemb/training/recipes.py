"""A preset's recipe: defaults of fairseq's options, and checkpoints in mid-epoch."""

import argparse
import functools
import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

from fairseq import checkpoint_utils, models, options
from fairseq.logging import metrics
from fairseq.registry import REGISTRIES
from fairseq.trainer import Trainer

from ..checkpoints.meaning import THREE_WAY, TYING
from ..option_checks import flag_of
from ..plan.settings import Settings
from ..wrapping import wrap
from .extensions import Extensions, extensions_of

logger = logging.getLogger(__name__)


@wrap(options, "parse_args_and_arch")
def recipes_are_defaults(
    original: Any,
    parser: argparse.ArgumentParser,
    input_args: Any = None,
    parse_known: bool = False,
    suppress_defaults: bool = False,
    modify_parser: Callable[[argparse.ArgumentParser], Any] | None = None,
) -> Any:
    """Take a preset's task, criterion, optimizer, schedule and their options from its recipe by default.

    Without it: fairseq takes these from the command line alone (options.py:138), before it asks the model for its
    options, so that the options of a recipe's optimizer are unknown. Goes when a model may define how it is trained.
    """

    def with_recipe(parser: argparse.ArgumentParser) -> None:
        # Called twice: before fairseq reads the choices, and after it has added the options of the chosen.
        reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for flags in (("--arch", "-a"), ("--optimizer",), ("--lr-scheduler",), ("--lr",)):
            reader.add_argument(*flags)
        given = reader.parse_known_args(input_args)[0]
        model = extensions_of(models.ARCH_MODEL_REGISTRY.get(given.arch))
        parser.set_defaults(**(_recipe(model, given) | _equal_widths(model, input_args)))
        if modify_parser is not None:
            modify_parser(parser)

    return original(parser, input_args, parse_known, suppress_defaults, with_recipe)


def _recipe(model: Extensions, given: argparse.Namespace) -> dict[str, Any]:
    """Return the recipe of a command's model, without the optimizer's options if the command sets another optimizer.

    Criterions and schedules share options (`label_smoothing`, `warmup_updates`), but an optimizer's momentum is no
    default for another optimizer. If the model's `recipe_yields`, setting an optimizer disables the whole recipe. The
    epoch from which the rate falls is of the recipe's own rates: it would cut off a list of rates, and another
    schedule, in silence.
    """
    rates = [rate for rate in (given.lr or "").strip("[]").split(",") if rate.strip()]
    has_other_rates = len(rates) > 1 or given.lr_scheduler not in (None, model.recipe.get("lr_scheduler"))
    recipe = {name: value for name, value in model.recipe.items() if name != "force_anneal" or not has_other_rates}
    if given.optimizer is not None and model.recipe_yields:
        _say_that_no_recipe_is_used(given.arch)
        return {}
    if given.optimizer in (None, recipe.get("optimizer")) or "optimizer" not in recipe:
        return recipe
    of_recipe = argparse.ArgumentParser(add_help=False)
    REGISTRIES["optimizer"]["registry"][recipe["optimizer"]].add_args(of_recipe)
    left_out = {action.dest for action in of_recipe._actions}
    return {name: value for name, value in recipe.items() if name not in left_out}


def _equal_widths(model: Extensions, input_args: Any) -> dict[str, str]:
    """Return the widths that the command's tied model needs to be equal, if the command sets one of them."""
    if model.family is None:
        return {}
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in (*model.family.equal_widths, "encoder_embed_dim"):
        parser.add_argument(flag_of(name))
    for name in (TYING, THREE_WAY, "projection"):
        parser.add_argument(flag_of(name), action="store_true")
    settings = Settings(parser.parse_known_args(input_args)[0], model.family, model.turned_on)
    given = {settings(name) for name in settings.equal_widths} - {None}
    return dict.fromkeys(settings.equal_widths, given.pop()) if len(given) == 1 else {}


@functools.cache  # a command parses its options more than once
def _say_that_no_recipe_is_used(arch: str) -> None:
    logger.info(
        f"--optimizer disables the recipe of {arch}: criterion, batch size, clipping, schedule and number of updates "
        f"are the command's own (`fairseq-tiedemb arch {arch}` shows the recipe)"
    )


@wrap(Trainer, "__init__")
def recipes_save_in_mid_epoch(original: Any, self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kw: Any) -> None:
    """Write `checkpoint_last.pt` in mid-epoch at the interval of a preset's recipe, without validation.

    Without it: a training interrupted in its first epoch starts anew, or `--save-interval-updates` also validates,
    which changes `checkpoint_best.pt`, counts for `--patience` (fairseq_cli/train.py:420) and adds files. The flag is
    fairseq's own if it differs from the recipe's number, if the command has `--keep-interval-updates`, or if the recipe
    yields to `--optimizer`; 0 saves at ends of epochs alone. Goes when fairseq saves without validating.
    """
    original(self, cfg, task, model, *args, **kw)
    # With a recipe that yields, the flag keeps fairseq's meaning in commands older than the recipe.
    preset = extensions_of(model)
    every = 0 if preset.recipe_yields else preset.recipe.get("save_interval_updates", 0)
    of_recipe = every, preset.recipe.get("keep_interval_updates", -1)
    given = self.cfg.checkpoint.save_interval_updates, self.cfg.checkpoint.keep_interval_updates
    self._saves_last_every = every if of_recipe == given else 0
    if self._saves_last_every:
        self.cfg.checkpoint.save_interval_updates = 0


@wrap(Trainer, "get_train_iterator")
def batches_of_the_epoch(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Keep the epoch's batches; see `recipes_save_in_mid_epoch`."""
    self._batches_of_epoch = original(self, *args, **kwargs)
    return self._batches_of_epoch


@wrap(Trainer, "train_step")
def save_in_mid_epoch(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Save after an update that the interval divides; see `recipes_save_in_mid_epoch`."""
    logged = original(self, *args, **kwargs)
    updates = self._saves_last_every and logged is not None and self.get_num_updates()  # no overflow
    if updates and updates % self._saves_last_every == 0 and not self._batches_of_epoch.end_of_epoch():
        with mock.patch.dict(metrics._aggregators):
            if updates % self.cfg.common.log_interval == 0:  # fairseq logs these, and begins anew, after this step
                metrics._aggregators.pop("train_inner", None)
            checkpoint_utils.save_checkpoint(self.cfg.checkpoint, self, self._batches_of_epoch, None)
    return logged
