"""Ties the tables of an untied model, and unties those of a tied one."""

from typing import Any

from fairseq import tasks
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from fairseq_tiedemb.checkpoints.meaning import MERGED, THREE_WAY, TYING, preset_of
from fairseq_tiedemb.checkpoints.table_names import is_table
from fairseq_tiedemb.option_checks import flag_of
from fairseq_tiedemb.starts.trained import Trained, Weights

# Parts of a tied decoder that are the same table; a model has one of the outputs.
SHARED = ("decoder.embed_tokens.", "decoder.output_projection.", "decoder.output.")
# Options by which tables are no longer two matrices (V, D) of one basis.
REFUSED = ("embedding_rank", "adaptive_softmax_cutoff", "adaptive_input")
SHARING = (TYING, THREE_WAY, MERGED, "tie_adaptive_weights", "tie_adaptive_proj")


def tie(trained: Trained, way: str) -> tuple[dict[str, Any], str]:
    """Returns the checkpoint of a model whose input and output share a table, and what the table is.

    Args:
        trained: a model of two tables.
        way: "mean" of both, "input" or "output". What one of the tables alone has, such as a bias, is kept.

    Raises:
        ValueError: if the tables are one already, or cannot be.
    """
    weights = trained.model.state_dict()
    for option in REFUSED:
        if value := trained.used(option):
            got = f"{flag_of(option)} {value}"
            raise ValueError(f"CHECKPOINT: needs two tables of all words in one basis; got {got}. Use a new training.")
    if _shares(weights) or trained.used(TYING):  # fairseq's `lstm` has its one table under one name
        raise ValueError(f"CHECKPOINT: needs an untied model; got {trained.path}, whose tables are one. Use it as is.")
    if not any(f"{name}weight" in weights for name in SHARED[1:]):
        needs, use = "an output table that this command knows", "a new training"
        raise ValueError(f"CHECKPOINT: needs {needs}; got {trained.path}, without one. Use {use}.")
    changes = {TYING: True}
    tied = trained.built(trained.task, **changes)
    shapes = [weights[f"{name}weight"].shape for name in SHARED if f"{name}weight" in weights]
    for place, needs in ((1, "input and output vectors of one width"), (0, "input and output tables of as many words")):
        if len({shape[place] for shape in shapes}) > 1:
            got = " and ".join(str(shape[place]) for shape in shapes)
            raise ValueError(f"CHECKPOINT: needs {needs}; got {got}. Use a new training.")
    state = trained.start(tied, lambda old: {key: _tied(old, key, way) for key in tied.state_dict()}, model=changes)
    return state, f"input and output are one table, by --from {way}; it needs training with {flag_of(TYING)}"


def untie(trained: Trained) -> tuple[dict[str, Any], str]:
    """Returns the checkpoint of a model that scores alike, with a table for each role, which must share one now."""
    if not _shares(trained.model.state_dict()):
        got = f"{trained.path}, with none that can be taken apart"
        raise ValueError(f"CHECKPOINT: needs shared tables; got {got}. Use it as it is.")
    options = trained.options
    changes: dict[str, Any] = {name: False for name in SHARING if name in options}
    preset = ARCH_MODEL_REGISTRY[preset_of(options)]
    if turned_on := getattr(preset, "turned_on", ()):  # a preset that shares by its name: that of its model
        name = next(name for name, model in MODEL_REGISTRY.items() if model is preset.__bases__[0])
        changes |= {key: name for key in ("_name", "arch") if key in options}
        changes |= {key: True for key in turned_on if key not in SHARING}
    # Of a task whose dictionaries the model has not merged: without sharing, each table has its own.
    new = trained.built(tasks.setup_task(trained.config.task), **changes)
    return trained.start(new, dict, model=changes), "each role has a table of its own, which scores as before"


def _shares(weights: Weights) -> bool:
    """Whether two tables are one tensor."""
    places = [entry.data_ptr() for key, entry in weights.items() if is_table(key) and entry.dim() == 2]
    return len(set(places)) < len(places)


def _tied(old: Weights, key: str, way: str) -> Tensor:
    """An entry of the tied model; where input and output have it, both are used as ``way`` says."""
    part = next((key.removeprefix(name) for name in SHARED if key.startswith(name)), None)
    both = [old[name + part] for name in SHARED if part is not None and name + part in old]
    if len(both) < 2:
        return both[0] if both else old[key]
    return (both[0] + both[1]) / 2 if way == "mean" else both[way == "output"]
