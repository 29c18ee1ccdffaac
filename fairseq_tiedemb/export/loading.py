"""Builds the model of a checkpoint, with its task and dictionaries."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq_tiedemb.analysis.dictionaries import load_dictionary
from fairseq_tiedemb.export.targets import TASKS, TRANSLATION


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
    names = ["dict.txt"]
    if of_task["_name"] == TASKS[TRANSLATION]:
        languages = (of_task["source_lang"], of_task["target_lang"])
        if None in languages:
            languages = infer_language_pair(folder) if Path(folder).is_dir() else languages
        names = [f"dict.{language or 'LANGUAGE'}.txt" for language in languages]
    for name in names:
        load_dictionary(Path(folder, name), flag="--data")
    # The checkpoint replaces the initial word vectors, whose file may be gone.
    overrides = {"data": folder, "encoder_embed_path": None, "decoder_embed_path": None}
    try:
        ensemble, config, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], overrides)
    except RuntimeError as error:  # torch's, for wrong shapes and names
        text = " ".join(str(error).split())
        if "key(s) in state_dict" in text:
            needs, use = f"CHECKPOINT: needs exactly the weights of its model; got {checkpoint}", "the checkpoint"
        else:
            needs, use = f"--data: needs dictionaries that fit the weights of {checkpoint}; got {folder}", "those"
        raise ValueError(f"{needs} ({text}). Use {use} of the training as it was saved.") from error
    return ensemble[0], task, config
