"""Compares a checkpoint's options and dictionaries with the current ones, where tensor shapes show no difference."""

import copy
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.file_io import PathManager
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.translation import TranslationTask

from ..checkpoints.dictionaries import KEY, fingerprint, fingerprints_of_training
from ..checkpoints.meaning import differences
from ..embedding import OF_METHOD
from ..option_checks import flag_of
from ..wrapping import wrap
from .extensions import extensions_of, model_class

logger = logging.getLogger(__name__)

# Beside the fingerprints: whether --merge-src-tgt-embed made one dictionary of both, as fairseq does for a model.
MERGED_KEY = "merged"
OUTPUT = "output"  # the side of the words that --output-dictionary-size leaves
FLAGS = {"source": "srcdict", "target": "tgtdict"}  # of fairseq-preprocess

ADAMS = {"adam": "FairseqAdam", "fused_adam": "FairseqFusedAdam"}


@wrap(checkpoint_utils, "load_checkpoint")
def checked_resume(original: Any, cfg: Any, trainer: Any, **kwargs: Any) -> Any:
    """Refuse to resume with options that give the weights another meaning, or with another dictionary.

    Without it: a training with another `--sharing-method`, or other tying, loads the weights, whose shapes are equal
    (trainer.py:585); a dictionary in another order swaps the words' vectors. `--finetune-from-model` may change both,
    and logs it. The options are the `meaning` of a model's class (checkpoints/meaning.py). Goes when fairseq compares.
    """
    for name in ("restore_file", "continue_once"):
        if cfg.finetune_from_model and cfg[name] not in (None, "checkpoint_last.pt"):
            got = f"{cfg.finetune_from_model} and {flag_of(name)} {cfg[name]}"
            raise ValueError(f"--finetune-from-model: needs to be alone; got {got}. Use one of them.")
    # fairseq trains anew, and says so in its log alone, if the file is missing.
    name = "restore_file"
    if cfg.restore_file == "checkpoint_last.pt":
        name = "continue_once" if cfg.continue_once else "finetune_from_model"
    path, is_new = getattr(cfg, name), not Path(cfg.save_dir, "checkpoint_last.pt").exists()
    if path and (is_new or name == "restore_file") and not cfg.checkpoint_suffix and not PathManager.isfile(path):
        raise ValueError(f"{flag_of(name)}: needs a checkpoint; got {path}, which is none. Use another path.")
    read = functools.partial(checked_file, checkpoint_utils.load_checkpoint_to_cpu, cfg, trainer)
    with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", read):
        return original(cfg, trainer, **kwargs)


def checked_file(read: Any, cfg: Any, trainer: Any, path: str, *args: Any, **kwargs: Any) -> Any:
    """Read and check a file that a training resumes from; see `checked_resume`."""
    state = read(path, *args, **kwargs)
    check_resume(state, str(path), cfg, trainer)
    if path == cfg.finetune_from_model:
        start_the_methods_own(state, trainer)
    if trainer.cfg.ema.store_ema and state.get("extra_state"):  # fairseq wants weights that it has deleted
        state["extra_state"].setdefault("ema", dict(state["model"]))
    # Settings that somebody has cut down may lack any section.
    last, then = (state.get("optimizer_history") or [{}])[-1], state.get("cfg") or {}
    if not cfg.reset_optimizer and path != cfg.finetune_from_model:
        # fairseq compares the names of its wrappers for half precision.
        old, new = (getattr(each.get("optimizer"), "_name", None) for each in (then, trainer.cfg))
        if old and old != new and not {old, new} <= {*ADAMS}:
            use = "--reset-optimizer to begin without its state, or the same"
            raise ValueError(f"--optimizer: needs {old}, as in {path}; got {new}. Use {use}.")
    best, of_best = then.get("checkpoint"), ("best_checkpoint_metric", "maximize_best_checkpoint_metric")
    if best and [best[name] for name in of_best] != [cfg[name] for name in of_best]:
        # fairseq would compare the new metric with the best value of the old one.
        (state.get("extra_state") or {}).pop("best", None)
        (last.get("lr_scheduler_state") or {}).pop("losses", None)
    if last.get("optimizer_name") in ADAMS.values():  # each takes the other's state; fairseq compares the names
        last["optimizer_name"] = ADAMS.get(trainer.cfg.optimizer._name, last["optimizer_name"])
    return state


@wrap(checkpoint_utils, "overwrite_args_by_name")
def checked_overrides(original: Any, cfg: Any, overrides: dict[str, Any]) -> None:
    """Refuse `--model-overrides`, and arguments of `from_pretrained`, that give the weights another meaning.

    Without it: a model trained with one sharing method is scored with another (checkpoint_utils.py:366), in
    fairseq-generate, -interactive, -eval-lm, -validate and from Python. Goes with `checked_resume`.
    """
    trained = copy.deepcopy(cfg.get("model"))
    original(cfg, overrides)
    for flag, old, new in other_meaning(trained, cfg.get("model")):
        needs = f"{old}, with which the checkpoint's weights were trained"
        use = "it out of --model-overrides, or of the arguments of from_pretrained"
        raise ValueError(f"{flag}: needs {needs}; got {new}. Leave {use}.")


@wrap(TranslationTask, "state_dict")
@wrap(LanguageModelingTask, "state_dict")
def dictionary_fingerprints(original: Any, self: Any) -> dict[str, Any]:
    """Save fingerprints of the dictionaries in checkpoints of translation and language models, and compare them.

    Without it: a model is scored, or translates, with a dictionary in another order, which swaps the words' vectors
    (checkpoint_utils.py:464). Checkpoints without them load. Goes when checkpoints hold their dictionaries.
    """
    merged = isinstance(self, TranslationTask) and self.source_dictionary is self.target_dictionary
    return {**original(self), KEY: {**fingerprints(self), **({MERGED_KEY: True} if merged else {})}}


@wrap(TranslationTask, "load_state_dict")
@wrap(LanguageModelingTask, "load_state_dict")
def checked_dictionaries(original: Any, self: Any, state_dict: dict[str, Any]) -> None:
    """Refuse other dictionaries than the saved ones; see `dictionary_fingerprints`."""
    state_dict = state_dict or {}
    for _, _, _, refusal in other_dictionaries(self, state_dict):
        raise ValueError(refusal)
    original(self, {key: value for key, value in state_dict.items() if key != KEY})


def check_resume(state: dict[str, Any], path: str, checkpoint: Any, trainer: Any) -> None:
    """Raise ValueError if options or dictionaries of a checkpoint differ from those of the training that loads it.

    Fine-tuning logs them instead. ``checkpoint`` is that section of the config, ``state`` that of the file at ``path``.
    """
    trained, model = getattr(state.get("cfg"), "model", None), trainer.cfg.model
    then, now = (getattr(options, "_name", None) for options in (trained, model))
    differing = []
    for flag, old, new in other_meaning(trained, model):
        refusal = (
            f"{flag}: needs {old}, with which the weights of {path} were trained (--arch {then}); got {new} (--arch "
            f"{now}). Use the same, or another --save-dir for a new training, or --finetune-from-model, which may "
            "change what leaves all shapes as they are."
        )
        differing.append((flag, old, new, refusal))
    differing += other_dictionaries(trainer.task, state.get("task_state") or {})
    for what, old, new, refusal in differing:
        if path != checkpoint.finetune_from_model:
            raise ValueError(refusal)
        logger.warning(f"--finetune-from-model {path}: {what} was {old} in its training, and is {new} now")


def start_the_methods_own(state: dict[str, Any], trainer: Any) -> None:
    """Replace parameters of the checkpoint's sharing method, if the training has another one, by that one's own."""
    options = getattr(state.get("cfg"), "model", None), trainer.cfg.model
    if len({getattr(model, "sharing_method", "plain") for model in options}) == 1:
        return
    own = {key: value.cpu() for key, value in trainer.get_model().state_dict().items() if OF_METHOD.search(key)}
    extra = state.get("extra_state") or {}
    for holder, name in ((state, "model"), (extra, "ema"), (extra, "ema_fp32_params")):
        if name in holder:
            holder[name] = {key: value for key, value in holder[name].items() if not OF_METHOD.search(key)} | own


def other_meaning(trained: Any, cfg: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options that change the meaning of trained weights, as (flag, value in training, value now).

    `trained` are the options of the trained model, or None; `cfg` those of the model that loads its weights.
    """
    old, new = (model_class(options) or object for options in (trained, cfg))
    # fairseq's own models have no `meaning`; our models load their checkpoints, and vice versa.
    choices = [choice for model in (old, new) for choice in extensions_of(model).meaning]
    return iter(()) if trained is None else differences((old, trained), (new, cfg), choices)


def fingerprints(task: Any, *, merged: bool = False) -> dict[str, dict[str, Any]]:
    """Return the fingerprints of a task's dictionaries, by side; `merged` are those that fairseq will make into one.

    A language model's "output" is what `--output-dictionary-size` leaves of "target", where fairseq keeps all symbols.
    """
    sides = ("source", "target", OUTPUT)
    dictionaries: dict[str, Any] = {side: getattr(task, f"{side}_dictionary", None) for side in sides}
    words = {side: given.symbols for side, given in dictionaries.items() if isinstance(given, Dictionary)}
    if OUTPUT in words:
        words[OUTPUT] = words[OUTPUT][: len(dictionaries[OUTPUT])]
    if merged:
        words = dict.fromkeys(words, list(dict.fromkeys(word for symbols in words.values() for word in symbols)))
    return {side: fingerprint(symbols) for side, symbols in words.items()}


def other_dictionaries(task: Any, state: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Yield a task's dictionaries that differ from the training's: file, words in training, words now, error message.

    `state` is the task's state in the checkpoint.
    """
    kept = fingerprints_of_training(state)
    for side, present in (found := fingerprints(task, merged=MERGED_KEY in (state.get(KEY) or {}))).items():
        expected = kept.get(side) or present
        if present == expected or (side == OUTPUT and kept.get("target") != found["target"]):  # which tells it
            continue
        if side == OUTPUT:
            file, old, new = "--output-dictionary-size", expected["size"], present["size"]
            yield file, old, new, f"{file}: needs {old}, as in the checkpoint's training; got {new}. Use the same."
            continue
        language = getattr(task.cfg, f"{side}_lang", None)
        file = f"dict.{language}.txt" if language else "dict.txt"
        old = f"{expected['size']} words"
        new = f"{present['size']}" + " others, or another order" * (present["size"] == expected["size"])
        needs, flag = "that the checkpoint was trained with, in their order", f"--{FLAGS[side]}"
        use = f"the data folder of the training, or one made with its dictionary (fairseq-preprocess {flag})"
        yield file, old, new, f"{file}: needs the {old} {needs}; got {new}. Use {use}."
