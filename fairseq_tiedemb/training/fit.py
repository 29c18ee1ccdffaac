"""Model, task and criterion fit each other, or the command says so at its start."""

import argparse
import dataclasses
import logging
import re
from typing import Any

from fairseq import models, tasks
from fairseq.dataclass import utils as dataclass_utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from ..option_checks import flag_of
from ..wrapping import wrap
from .extensions import extensions_of, model_class

logger = logging.getLogger(__name__)


@wrap(dataclass_utils, "override_module_args")  # the first function to convert a command's options
def models_fit_their_task(original: Any, args: argparse.Namespace) -> Any:
    """Refuse a translation model with a language modelling task, as in fairseq-eval-lm, and the reverse.

    Without it: AttributeError on `supported_targets` or `encoder`, after the model is built
    (tasks/language_modeling.py:193), or hydra's errors of options (dataclass/utils.py:408). Goes when fairseq compares.
    """
    task, arch = getattr(args, "task", None), getattr(args, "arch", None)
    model = models.MODEL_DATACLASS_REGISTRY.get(models.ARCH_MODEL_NAME_REGISTRY.get(arch))
    config = tasks.TASK_DATACLASS_REGISTRY.get(task)
    if model is None or config is None:
        return original(args)
    # The model may take defaults from options that the task lacks.
    taken = re.findall(r"\$\{task\.(\w+)\}", " ".join(str(field.default) for field in dataclasses.fields(model)))
    lacking = sorted(set(taken) - {field.name for field in dataclasses.fields(config)})
    if lacking:
        _check_fit(tasks.TASK_REGISTRY[task], args)
        flags = ", ".join(map(flag_of, lacking))
        raise ValueError(f"--arch {arch}: needs a task with {flags}; got --task {task}. Use the task of such models.")
    return original(args)


@wrap(LanguageModelingTask, "build_model")
@wrap(TranslationTask, "build_model")
def tasks_fit_their_model(original: Any, self: Any, args: Any, from_checkpoint: bool = False) -> Any:
    """Refuse a model that does not fit its task where a checkpoint is loaded; see `models_fit_their_task`."""
    _check_fit(type(self), args, from_checkpoint=from_checkpoint)
    return original(self, args, from_checkpoint)


def _check_fit(task: type, options: Any, *, from_checkpoint: bool = False) -> None:
    """Raise ValueError if either the task or the model is for language modelling, and the other for translation."""
    model, name = model_class(options), getattr(options, "_name", None) or getattr(options, "arch", None)
    if model is None:
        return
    is_language_model = hasattr(model, "supported_targets")
    if issubclass(task, LanguageModelingTask) and not is_language_model:
        flag, first, second = "--arch", "--task translation", "--task word_pairs"
        if from_checkpoint:
            flag, first, second = "--path", "fairseq-generate", "fairseq-validate"
        use = f"Use {first} for a translation model, {second} for word2vec"
        raise ValueError(f"{flag}: needs a language model; got {name}, another kind of model. {use}.")
    if issubclass(task, TranslationTask) and is_language_model:
        of_model = extensions_of(model).recipe.get("task", "language_modeling")
        flag, remedy = ("--path", "fairseq-eval-lm") if from_checkpoint else ("--arch", f"--task {of_model}")
        raise ValueError(f"{flag}: needs a translation model; got {name}, a language model. Use {remedy} for it.")


@wrap(Trainer, "_build_optimizer")
def models_check_their_training(original: Any, self: Trainer) -> None:
    """Call a model's ``check_training``, which checks its options and the criterion, before the first step.

    fairseq builds model and criterion separately (fairseq_cli/train.py:97). A criterion that accepts the shape of the
    model's logits, but not their meaning, would silently train something else.
    """
    extensions_of(self._model).check_training(self._criterion, self.cfg.model)
    if self._optimizer is None:  # else a checkpoint has been loaded, and all is built once more
        _warn_of_processes(self)
    original(self)
    if extensions_of(self._lr_scheduler).decay_of_average is not None:
        _check_average(self.cfg)


def _warn_of_processes(trainer: Trainer) -> None:
    """Warn of bands that a wrapper waits for, and of a preset's batch in each of several processes."""
    ddp, recipe = trainer.cfg.distributed_training, extensions_of(trainer._model).recipe
    has_bands = getattr(getattr(trainer._model, "decoder", None), "adaptive_softmax", None) is not None
    waits = ddp.ddp_backend in ("c10d", "pytorch_ddp") and not ddp.find_unused_parameters
    if has_bands and waits and trainer.use_distributed_wrapper:
        logger.warning(
            f"--ddp-backend {ddp.ddp_backend}: with an adaptive softmax a process whose batch has no word of a band "
            "ends the training, or lets it wait for ever. Use --ddp-backend legacy_ddp."
        )
    processes = trainer.data_parallel_world_size
    # The losses of word_pairs are sums, of which an update of several processes takes the mean.
    is_told = processes > 1 and trainer.is_data_parallel_master and recipe.get("criterion") != "word_pairs"
    for name in ("batch_size", "max_tokens") if is_told else ():
        size = recipe.get(name)
        if size and trainer.cfg.dataset[name] == size:
            logger.warning(
                f"{flag_of(name)}: the preset's learning rate needs {size} in all processes together; got {size} in "
                f"each of {processes}. Use {flag_of(name)} {size // processes or 1}, or --distributed-world-size 1."
            )


def _check_average(cfg: Any) -> None:
    """Raise ValueError if options keep a schedule from averaging the weights of all updates."""
    ema, flag = cfg.ema, f"--lr-scheduler {cfg.lr_scheduler._name}"
    if not ema.store_ema:
        raise ValueError(f"{flag}: needs --store-ema, whose average it begins; got none. Use --store-ema --ema-fp32.")
    if cfg.dataset.disable_validation:
        needs = "another schedule, since validations begin this one's average"
        raise ValueError(f"--disable-validation: needs {needs}; got {flag}. Leave it out.")
    if ema.ema_update_freq != 1:
        needs = f"1 with {flag}, which averages all updates"
        raise ValueError(f"--ema-update-freq: needs {needs}; got {ema.ema_update_freq}. Leave it out.")
