"""Loads the trained model of a checkpoint, its task and dictionaries, by fairseq: for every tool that needs a model."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import infer_language_pair
from omegaconf import OmegaConf

import fairseq_tiedemb.plugin  # noqa: F401 (registers our models, and mends fairseq, or it would run settings as code)
from fairseq_tiedemb.checkpoints.reading import is_weight, read_checkpoint, require_finite
from fairseq_tiedemb.training.extensions import model_class


def load_dictionary(path: Path, *, flag: str) -> Any:
    """Returns fairseq's dictionary of a dict.txt; ValueError, naming flag and file, if it is missing, empty or none."""
    if not path.is_file():
        use = "Use a folder of fairseq-preprocess; with --only-source it has a dict.txt."
        raise ValueError(f"{flag}: needs a file; got {path}, which is none. {use}")
    try:
        if len(dictionary := Dictionary.load(str(path))) == dictionary.nspecial:
            raise ValueError("without words")
    except Exception as error:  # fairseq raises many classes, including Exception itself
        needs, got = "the dictionary of fairseq-preprocess", f"{path} ({' '.join(str(error).split())})"
        raise ValueError(f"{flag}: needs {needs}; got {got}. Use the one that it wrote.") from error
    return dictionary


def checked_settings(
    state: Mapping[str, Any], name: str, *, sections: tuple[str, ...] = (), flag: str = "CHECKPOINT"
) -> dict[str, Any]:
    """Returns a checkpoint's settings by section, as dicts: model, task, the required `sections`, and others.

    Raises ValueError, which names flag and file, if it lacks a section, has no weights, or has one that is not finite.
    """
    settings = state.get("cfg")
    if settings is None and isinstance(state.get("args"), Namespace):
        settings = _of_older(state, name, flag)
    found = settings.items() if isinstance(settings, dict) else ()
    by_section = {section: vars(options) if isinstance(options, Namespace) else options for section, options in found}
    for section in ("model", "task", *sections):
        if not isinstance(by_section.get(section), Mapping):
            needs = "settings of model and training, as fairseq-train saves them"
            use = "the checkpoint of the training as it was saved"
            raise ValueError(f"{flag}: needs {needs}; got {name}, which has none of its {section}. Use {use}.")
    if not any(map(is_weight, state["model"].values())):
        raise ValueError(f"{flag}: needs a model; got {name}, whose model has no weights. Use another.")
    require_finite(state["model"], name, flag=flag)
    return by_section


def _of_older(state: Mapping[str, Any], name: str, flag: str) -> dict[str, Any]:
    """Upgrades the settings of a fairseq before 0.10, as fairseq does when it loads such a checkpoint."""
    small = {key: value for key, value in state.items() if key not in ("model", "last_optimizer_state", "optimizer")}
    try:
        upgraded = checkpoint_utils._upgrade_state_dict(copy.deepcopy({"optimizer": None, **small}))["cfg"]
    except Exception as error:  # fairseq raises errors of any class
        got, use = f"{name} ({type(error).__name__}: {error})", "the checkpoint of the training as it was saved"
        raise ValueError(f"{flag}: needs settings that fairseq can upgrade; got {got}. Use {use}.") from error
    return dict(OmegaConf.to_container(upgraded))  # type: ignore[arg-type]


def load_model(checkpoint: Path, settings: Mapping[str, Any], data: Path | None) -> tuple[Any, Any, Any]:
    """Returns the model of a checkpoint, its task, and the settings of its training as fairseq reads them.

    `settings` are those of ``checked_settings``; `data` is the folder with the dictionaries, None for the training's.
    ValueError if the settings name no task, a dictionary is missing, or the weights do not fit the model and its
    dictionaries.
    """
    of_task = settings["task"]
    if "_name" not in of_task:
        use = "the checkpoint of the training as it was saved"
        raise ValueError(f"CHECKPOINT: needs a task; got {checkpoint}, whose settings name none. Use {use}.")
    folder = str(data or of_task["data"]).split(":")[0]
    names = [] if of_task.get("lang_pairs") else ["dict.txt"]  # a task of several pairs reads its own
    if of_task["_name"] == "translation":
        languages = (of_task["source_lang"], of_task["target_lang"])
        if None in languages:
            languages = infer_language_pair(folder) if Path(folder).is_dir() else languages
        names = [f"dict.{language or 'LANGUAGE'}.txt" for language in languages]
    for name in names:
        load_dictionary(Path(folder, name), flag="--data")
    # The checkpoint replaces the initial word vectors, whose file may be gone.
    overrides = {"data": folder, "encoder_embed_path": None, "decoder_embed_path": None}
    ensemble, config, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], overrides)
    return ensemble[0], task, config


def load_language_model(checkpoint: Path, data: Path, *, flag: str = "CHECKPOINT") -> tuple[Any, Any]:
    """Returns a trained language model, fairseq's or ours, in evaluation mode, and its task.

    `data` is the folder with the dict.txt of the training. ValueError if a file is missing, the model is registered and
    is not a language model, or a weight is not finite.
    """
    settings = checked_settings(read_checkpoint(checkpoint, flag=flag), str(checkpoint), flag=flag)
    # Before the task is built: a translation model has no dict.txt, and the task of word vectors has other options.
    kind = model_class(Namespace(**settings["model"]))
    if kind is not None and not hasattr(kind, "supported_targets"):  # only language models have this method
        use = "another checkpoint, or fairseq-generate --score-reference for a translation model"
        raise ValueError(f"{flag}: needs a language model; got {kind.__name__} in {checkpoint}. Use {use}.")
    model, task, _ = load_model(checkpoint, settings, data)
    return model.eval(), task
