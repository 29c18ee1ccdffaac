"""Trained language models, loaded from their checkpoints by fairseq."""

from pathlib import Path
from typing import Any

from fairseq import checkpoint_utils, models

import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)
from fairseq_tiedemb.analysis.checkpoints import require_finite


def load_language_model(checkpoint: Path, data: Path, **overrides: Any) -> tuple[Any, Any]:
    """The model, ready to score, and its task.

    Args:
        checkpoint: of a language model, fairseq's or ours.
        data: folder with the dict.txt of the training.
        overrides: settings to take instead of the checkpoint's.

    Raises:
        ValueError: if a file is missing, or it is no language model, or a weight is not finite.
    """
    if not checkpoint.is_file():
        raise ValueError(f"CHECKPOINT: needs a file; got {checkpoint}, which is none. Use another path.")
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint), {"data": str(data), **overrides})
    # First of all, since what translates has no dict.txt, and word vectors have a task with other options.
    require_language_model(_model_class(state))
    if not (data / "dict.txt").is_file():
        raise ValueError(f"--data: needs a file; got {data / 'dict.txt'}, which is none. Use another path.")
    require_finite(state["model"], str(checkpoint), flag="CHECKPOINT")
    ensemble, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], state=state)
    model = ensemble[0].eval()
    require_language_model(type(model))
    return model, task


def _model_class(state: dict[str, Any]) -> Any:
    """The class of a checkpoint's model, None if it is not known."""
    model = state["cfg"].model
    name = getattr(model, "_name", None) or getattr(model, "arch", None)
    return models.ARCH_MODEL_REGISTRY.get(name) or models.MODEL_REGISTRY.get(name)


def require_language_model(model: Any) -> None:
    """Raises unless a class, if there is one, is that of a language model.

    Raises:
        ValueError: naming it.
    """
    if model is not None and not hasattr(model, "supported_targets"):  # what fairseq asks language models for
        raise ValueError(
            f"CHECKPOINT: needs a language model; got {model.__name__}, which is none. Use another, or "
            "fairseq-generate --score-reference if it translates."
        )


def log_probabilities(model: Any, words_BT: Any, net_input: dict[str, Any]) -> Any:
    """Natural logarithms (B, T) of the probabilities that a model gives to words, each after the words before it.

    Args:
        model: a language model.
        words_BT: what may follow, at each position.
        net_input: of fairseq's batches.
    """
    if hasattr(model, "log_prob"):  # ours, which need no scores of all words
        return model.log_prob(words_BT, **net_input)
    found = model.get_normalized_probs(model(**net_input), log_probs=True, sample={"target": words_BT})
    return found.gather(2, words_BT.unsqueeze(2)).squeeze(2)
