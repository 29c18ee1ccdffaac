"""A checkpoint's settings, which fairseq saves in several forms, and its model, task and dictionaries."""

import copy
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairseq_tiedemb.analysis.dictionaries import load_dictionary
from fairseq_tiedemb.checkpoints.reading import is_weight, require_finite
from fairseq_tiedemb.export.targets import TASKS, TRANSLATION


def checked_settings(state: Mapping[str, Any], name: str, *, sections: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns a checkpoint's settings by section, as dicts: model, task, the required `sections`, and others.

    Raises ValueError, which names the file, if it lacks a section, has no weights, or has one that is not finite.
    """
    settings = state.get("cfg")
    if settings is None and isinstance(state.get("args"), Namespace):
        settings = _of_older(state, name)
    found = settings.items() if isinstance(settings, dict) else ()
    by_section = {section: vars(options) if isinstance(options, Namespace) else options for section, options in found}
    for section in ("model", "task", *sections):
        if not isinstance(by_section.get(section), Mapping):
            needs = "settings of model and training, as fairseq-train saves them"
            use = "the checkpoint of the training as it was saved"
            raise ValueError(f"CHECKPOINT: needs {needs}; got {name}, which has none of its {section}. Use {use}.")
    if not any(map(is_weight, state["model"].values())):
        raise ValueError(f"CHECKPOINT: needs a model; got {name}, whose model has no weights. Use another.")
    require_finite(state["model"], name, flag="CHECKPOINT")
    return by_section


def require_distinct(words: Sequence[str]) -> None:
    """Raises ValueError for a word with two rows, which formats that know rows by their words would confuse."""
    if len(set(words)) < len(words):
        twice = next(word for index, word in enumerate(words) if word in words[:index])
        use = "a dictionary with this word once, and train again"
        raise ValueError(f"--data: needs dictionaries without repeated words; got {twice!r} twice. Use {use}.")


def _of_older(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Upgrades the settings of a fairseq before 0.10, as fairseq does when it loads such a checkpoint."""
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    import fairseq_tiedemb.plugin  # noqa: F401 (or fairseq would run settings as code)

    small = {key: value for key, value in state.items() if key not in ("model", "last_optimizer_state", "optimizer")}
    try:
        upgraded = checkpoint_utils._upgrade_state_dict(copy.deepcopy({"optimizer": None, **small}))["cfg"]
    except Exception as error:  # fairseq raises errors of any class
        got, use = f"{name} ({type(error).__name__}: {error})", "the checkpoint of the training as it was saved"
        raise ValueError(f"CHECKPOINT: needs settings that fairseq can upgrade; got {got}. Use {use}.") from error
    return dict(OmegaConf.to_container(upgraded))  # type: ignore[arg-type]


def load_model(checkpoint: Path, settings: Mapping[str, Any], data: Path | None) -> tuple[Any, Any, Any]:
    """Returns the model of a checkpoint, its task, and the settings of its training as fairseq reads them.

    `settings` are those of ``checked_settings``; `data` is the folder with the dictionaries, None for the training's.
    ValueError if a dictionary is missing, or the weights do not fit the model and its dictionaries.
    """
    from fairseq import checkpoint_utils
    from fairseq.data.data_utils import infer_language_pair

    import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)

    of_task = settings["task"]
    folder = str(data or of_task["data"]).split(":")[0]
    names = [] if of_task.get("lang_pairs") else ["dict.txt"]  # a task of several pairs reads its own
    if of_task["_name"] == TASKS[TRANSLATION]:
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
