"""Fingerprints of dictionaries, which checkpoints keep: they tell which words a model was trained with, in which order.

``training`` has fairseq's tasks keep them; whoever reads a dictionary for a checkpoint's rows compares it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

FAIRSEQ_WORDS = ["<s>", "<pad>", "</s>", "<unk>"]  # fairseq's own, which dict.txt leaves out
OVERWRITE = " #fairseq:overwrite"  # after the count of a word that replaces another of that name
KEY = "dictionaries_of_training"  # of the fingerprints in a task's state


def fingerprint(words: Sequence[str]) -> dict[str, Any]:
    """Size and SHA-256 of the words of a dictionary, in the order of their rows, fairseq's own among them."""
    return {"size": len(words), "sha256": hashlib.sha256("\n".join(words).encode()).hexdigest()}


def fingerprints_of_training(task_state: Any) -> dict[str, Any]:
    """The fingerprints in a checkpoint by side, "source", "target" and "output"; none where fairseq alone has trained.

    Version 0.1.0 kept one, for streams of text alone; "output" is of language models since version 0.1.40.
    """
    state = task_state if isinstance(task_state, dict) else {}
    kept = state.get(KEY) or dict.fromkeys(("source", "target"), state.get("dictionary"))
    return {side: found for side, found in kept.items() if isinstance(found, dict)}


def side_of(name: str) -> str:
    """The dictionary of a table's rows, by the table's name in a state dict: "source" of an encoder, else "target"."""
    return "source" if name.startswith("encoder.") else "target"


def is_another(words: Sequence[str], trained: dict[str, Any] | None) -> bool:
    """Whether a dictionary differs from the one of a training that has as many words.

    Another number of words, fairseq's own included, is not compared: a table may have only some of them, as with
    ``--output-dictionary-size`` or in a band. `trained` is the fingerprint; None if the checkpoint has none.
    """
    return trained is not None and trained.get("size") == len(words) and trained != fingerprint(words)
