"""Ties the tables of an untied model, and unties those of a tied one."""

import re
from typing import Any

from torch import Tensor

from fairseq_tiedemb.plan.settings import MERGED, THREE_WAY, TYING
from fairseq_tiedemb.starts.trained import Trained, Weights

INPUT = "decoder.embed_tokens."
OUTPUTS = ("decoder.output_projection.", "decoder.output.")
OF_TABLES = re.compile(r"\.(?:embed_tokens|output_projection|output|adaptive_softmax)\.")
WAYS = {"mean": "the mean of both", "input": "the input's", "output": "the output's"}
# Options by which tables are no longer two matrices (V, D) of one basis.
REFUSED = ("embedding_rank", "adaptive_softmax_cutoff", "adaptive_input")


def tie(trained: Trained, way: str) -> dict[str, Any]:
    """Returns the checkpoint of a model whose input and output share a table, made of the tables of both.

    Args:
        trained: a model of two tables.
        way: of ``WAYS``: mean, input or output. What one of the tables alone has, such as a bias, is kept.

    Raises:
        ValueError: if the tables are one already, or cannot be.
    """
    for option in REFUSED:
        if value := getattr(trained.options, option, None):
            raise ValueError(
                f"CHECKPOINT: needs two tables of all words in one basis; got --{option.replace('_', '-')} {value}. "
                "Use a new training for it."
            )
    if _shares(trained.model.state_dict()):
        raise ValueError(
            f"CHECKPOINT: needs an untied model; got {trained.path}, whose tables are one. Use it as it is."
        )
    changes = {TYING: True}
    tied = trained.built(**changes)

    def convert(old: Weights) -> Weights:
        return {key: _tied(old, key, way) for key in tied.state_dict()}

    return trained.start(tied, convert, **changes)


def untie(trained: Trained) -> dict[str, Any]:
    """Returns the checkpoint of a model that scores alike, with a table of its own for each role.

    Raises:
        ValueError: if no tables are shared.
    """
    if not _shares(trained.model.state_dict()):
        raise ValueError(
            f"CHECKPOINT: needs shared tables; got {trained.path}, whose tables are apart. Use it as it is."
        )
    changes = _without_sharing(trained.options)
    return trained.start(trained.built(**changes), dict, **changes)


def _shares(weights: Weights) -> bool:
    """Whether two entries of tables and output layers are one tensor."""
    places = [entry.data_ptr() for key, entry in weights.items() if OF_TABLES.search(key) and entry.dim() == 2]
    return len(set(places)) < len(places)


def _tied(old: Weights, key: str, way: str) -> Tensor:
    """The entry of the shared table; of two, both are used as ``way`` says."""
    output = next((name for name in OUTPUTS if f"{name}weight" in old), OUTPUTS[0])
    part = next((key.removeprefix(name) for name in (INPUT, *OUTPUTS) if key.startswith(name)), None)
    both = [old[name + part] for name in (INPUT, output) if part is not None and name + part in old]
    if len(both) < 2:
        return both[0] if both else old[key]
    return (both[0] + both[1]) / 2 if way == "mean" else both[way == "output"]


def _without_sharing(options: Any) -> dict[str, Any]:
    """Options of the same model without sharing; of a preset that shares by its name, the model that it is made of."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)

    sharing = (TYING, THREE_WAY, MERGED, "tie_adaptive_weights", "tie_adaptive_proj")
    changes: dict[str, Any] = {name: False for name in sharing if hasattr(options, name)}
    preset = ARCH_MODEL_REGISTRY[str(getattr(options, "_name", None) or options.arch)]
    turned_on = getattr(preset, "turned_on", ())
    if turned_on:
        of_preset = next(name for name, model in MODEL_REGISTRY.items() if model is preset.__bases__[0])
        changes |= {name: of_preset for name in ("_name", "arch") if hasattr(options, name)}
        changes |= {name: True for name in turned_on if name not in sharing}
    return changes
