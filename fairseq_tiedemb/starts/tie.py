"""Ties the tables of an untied model, and unties those of a tied one."""

from collections.abc import Mapping
from typing import Any

import torch
from fairseq import tasks
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from fairseq_tiedemb.checkpoints.meaning import MERGED, THREE_WAY, TYING, preset_of
from fairseq_tiedemb.checkpoints.table_names import is_table
from fairseq_tiedemb.option_checks import flag_of
from fairseq_tiedemb.starts.trained import Trained, Weights

# Parts of a tied model that are the same table, by role; a decoder has one of the outputs.
SHARED = {
    "encoder.embed_tokens.": "source",
    "decoder.embed_tokens.": "input",
    "decoder.output_projection.": "output",
    "decoder.output.": "output",
}
# Options by which tables are no longer two matrices (V, D) of one basis.
REFUSED = ("embedding_rank", "adaptive_softmax_cutoff", "adaptive_input")
SHARING = (TYING, THREE_WAY, MERGED, "tie_adaptive_weights", "tie_adaptive_proj")


def tie(trained: Trained, way: str, *, three_way: bool = False) -> tuple[dict[str, Any], str]:
    """Returns the checkpoint of a model whose input and output share a table, and what the table is.

    Args:
        trained: a model of several tables.
        way: "mean" of the tables, or the one for "input" or "output" of the decoder, or "source". What one of the
            tables alone has, such as a bias, is kept.
        three_way: whether the encoder's input shares it, too.

    Raises:
        ValueError: if the tables are one already, or cannot be.
    """
    weights, sharing = trained.model.state_dict(), THREE_WAY if three_way else TYING
    roles = {name: role for name, role in SHARED.items() if three_way or role != "source"}
    tables = {role: weights[f"{name}weight"] for name, role in roles.items() if f"{name}weight" in weights}
    if three_way and "source" not in tables:
        got = f"{trained.path}, without an encoder's table"
        raise ValueError(f"{flag_of(sharing)}: needs a translation model; got {got}. Leave it out.")
    for option in REFUSED:
        if value := trained.used(option):
            got = f"{flag_of(option)} {value}"
            raise ValueError(f"CHECKPOINT: needs two tables of all words in one basis; got {got}. Use a new training.")
    is_one = len({table.data_ptr() for table in tables.values()}) == 1 if three_way else _shares(weights)
    if is_one or trained.used(sharing):  # fairseq's `lstm` has its one table under one name
        raise ValueError(f"CHECKPOINT: needs an untied model; got {trained.path}, whose tables are one. Use it as is.")
    for role in ("input", "output"):
        if role not in tables:
            needs, use = f"an {role} table that this command knows", "a new training"
            raise ValueError(f"CHECKPOINT: needs {needs}; got {trained.path}, without one. Use {use}.")
    changes = {sharing: True}
    tied = trained.built(trained.task, **changes)
    shapes = [table.shape for table in tables.values()]
    for place, needs in ((1, "input and output vectors of one width"), (0, "input and output tables of as many words")):
        if len({shape[place] for shape in shapes}) > 1:
            got = " and ".join(str(shape[place]) for shape in shapes)
            raise ValueError(f"CHECKPOINT: needs {needs}; got {got}. Use a new training.")

    def convert(old: Weights) -> Weights:
        return {key: _tied(old, key, way, roles) for key in tied.state_dict()}

    about = f"input and output are one table, by --from {way}; it needs training with {flag_of(sharing)}"
    return trained.start(tied, convert, model=changes), "source, " * three_way + about


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


def _tied(old: Weights, key: str, way: str, roles: Mapping[str, str]) -> Tensor:
    """An entry of the tied model; where several of its tables have it, they are used as ``way`` says."""
    part = next((key.removeprefix(name) for name in roles if key.startswith(name)), None)
    if part is None:
        return old[key]
    entries = {role: old[name + part] for name, role in roles.items() if name + part in old}
    if way in entries:
        return entries[way]
    first, *others = {entry.data_ptr(): entry for entry in entries.values()}.values()  # a decoder's one table, once
    return torch.stack([first, *others]).mean(0) if others else first  # which may be whole numbers
