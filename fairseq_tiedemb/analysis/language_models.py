"""Loads trained language models from checkpoints, by fairseq's loader."""

from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils

import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)
from fairseq_tiedemb.analysis.dictionaries import load_dictionary
from fairseq_tiedemb.checkpoints.reading import require_finite
from fairseq_tiedemb.training.extensions import model_class


def load_language_model(checkpoint: Path, data: Path, *, flag: str = "CHECKPOINT") -> tuple[Any, Any]:
    """Returns a trained language model, fairseq's or ours, in evaluation mode, and its task.

    `data` is the folder with the dict.txt of the training. ValueError if a file is missing, the model is registered and
    is not a language model, or a weight is not finite.
    """
    if not checkpoint.is_file():
        raise ValueError(f"{flag}: needs a file; got {checkpoint}, which is not a file. Use another path.")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), {"data": str(data)})
    if state.get("cfg") is None:
        got = f"{checkpoint}, which lacks its model's settings"
        raise ValueError(f"{flag}: needs a checkpoint of fairseq-train; got {got}. Use another.")
    # Before the task is built: a translation model has no dict.txt, and the task of word vectors has other options.
    model = model_class(state["cfg"].model)
    if model is not None and not hasattr(model, "supported_targets"):  # only language models have this method
        use = "another checkpoint, or fairseq-generate --score-reference for a translation model"
        raise ValueError(f"{flag}: needs a language model; got {model.__name__} in {checkpoint}. Use {use}.")
    load_dictionary(data / "dict.txt", flag="--data")
    require_finite(state["model"], str(checkpoint), flag=flag)
    ensemble, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], state=state)
    return ensemble[0].eval(), task


def log_probabilities(model: Any, words_BT: Any, net_input: dict[str, Any]) -> Any:
    """Returns the natural log-probability (B, T) by a language model of the word at every position, given those before.

    `net_input` is that of fairseq's batch.
    """
    if hasattr(model, "log_prob"):  # our models compute it without the logits of the whole vocabulary
        return model.log_prob(words_BT, **net_input)
    log_probs_BTV = model.get_normalized_probs(model(**net_input), log_probs=True, sample={"target": words_BT})
    return log_probs_BTV.gather(2, words_BT.unsqueeze(2)).squeeze(2)
