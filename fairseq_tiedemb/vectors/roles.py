"""Reads a checkpoint's embedding tables by role: input, output, tied, or the sum of input and output."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_tiedemb.checkpoints.meaning import THREE_WAY, TYING
from fairseq_tiedemb.checkpoints.reading import section_of
from fairseq_tiedemb.checkpoints.table_names import PADDING_ROW, ROLES, is_table, table_name
from fairseq_tiedemb.constants import Constants
from fairseq_tiedemb.embedding import SharedEmbedding
from fairseq_tiedemb.sharing import sharing_method

BANDS = {"in": "embed_tokens.embeddings.", "out": "adaptive_softmax."}
SHOWN = 8


def tables_by_role(state: dict[str, Any], role: str | None, *, path: Path) -> dict[str, Tensor]:
    """Returns the vectors (V, D) of all words by role, float32, as the model uses them.

    With w_v the row of word v and n_v = ||w_v||^2, a sharing method's vectors are

        in, source:  input_scale(n_v) w_v      out:  scale(n_v) w_v

    They leave out what a method adds to the logits, its feature maps, P, and the factor of a factorised table. `role`
    is one of ``ROLES``; None stands for the decoder's "tied", or its "in" and "out". A role is unfit if its table is
    adaptive; "tied", if the tables are not; "sum", if the two differ in shape or are factorised apart.
    """
    sides = {"in": ("decoder", "in"), "out": ("decoder", "out"), "source": ("encoder", "in")}
    names = {part: table_name(state["model"], *of) for part, of in sides.items()}
    tied = _tied(state, names)
    if role is None:
        parts = ["tied"] if tied else [part for part in ("in", "out") if names[part] or _in_bands(state, part)]
        if not parts:
            raise _missing(state, "in", path)
        return {part: _vectors(state, names, part, path) for part in parts}
    if role == "tied" and not tied:
        raise ValueError(f"--role: needs in, out or sum for an untied model; got tied for {path}. Use in.")
    if role != "sum":
        return {role: _vectors(state, names, role, path)}
    rank = section_of(state, "model").get("embedding_rank")
    if rank and not tied:
        needs = "in or out for factorised tables, which have different bases"
        raise ValueError(f"--role: needs {needs}; got sum for {path}, of --embedding-rank {rank}. Use in, out.")
    first, second = _vectors(state, names, "in", path), _vectors(state, names, "out", path)
    if first.shape != second.shape:
        got = f"sum for {path}, with input {tuple(first.shape)} and output {tuple(second.shape)}"
        raise ValueError(f"--role: needs in or out for tables of different shapes; got {got}. Use in, out.")
    return {role: first + second}


def named_table(state: dict[str, Any], name: str, *, path: Path) -> Tensor:
    """Returns a matrix of the model by its name in the state dict, unchanged but in float32."""
    entry = state["model"].get(name)
    if not isinstance(entry, Tensor) or entry.dim() != 2 or not entry.numel():
        wanted = f"a role ({', '.join(ROLES)}) or the name of a matrix"
        raise _unknown(state, f"--tensor: needs {wanted} of {path}; got {name}.")
    return entry.float()


def _tied(state: dict[str, Any], names: dict[str, str | None]) -> bool:
    """Whether input and output are one table, of which stock fairseq's recurrent decoders save the input alone."""
    if names["in"] is None or _in_bands(state, "out"):
        return False
    if names["out"] is None:
        return any(section_of(state, "model").get(flag) for flag in (TYING, THREE_WAY))
    return torch.equal(state["model"][names["in"]], state["model"][names["out"]])


def _in_bands(state: dict[str, Any], role: str) -> bool:
    return role in BANDS and any(key.startswith(f"decoder.{BANDS[role]}") for key in state["model"])


def _vectors(state: dict[str, Any], names: dict[str, str | None], role: str, path: Path) -> Tensor:
    is_output = role == "out"
    # In both roles a tied table's vectors have the same direction.
    part = "in" if role == "tied" else role
    if _in_bands(state, part):
        bands = "bands of several widths (--adaptive-input, --adaptive-softmax-cutoff)"
        needs, got = "one table for all words", f"{part} for {path}, whose tables are {bands}"
        use = "a model without them, or --tensor with the name of a band and --dict with its words"
        raise ValueError(f"--role: needs {needs}; got {got}. Use {use}.")
    name = names[part] or (names["in"] if is_output and _tied(state, names) else None)
    weight = state["model"].get(name)
    if name is None or weight.dim() != 2 or not weight.numel():
        raise _missing(state, part, path)
    constants = Constants.of(section_of(state, "model"))
    constant = constants.logit_scale if is_output else constants.embedding_scale
    vectors = _effective(state, name, weight.float(), is_output=is_output, path=path)
    return vectors if constant == 1 else vectors * constant


@torch.no_grad()
def _effective(state: dict[str, Any], name: str, weight_VD: Tensor, *, is_output: bool, path: Path) -> Tensor:
    method = sharing_method(str(section_of(state, "model").get("sharing_method") or "plain"))
    if not method.scales:
        return weight_VD
    size, width = weight_VD.shape
    weight = nn.Parameter(weight_VD, requires_grad=False)
    table = SharedEmbedding(
        size, width, PADDING_ROW, method=method.name, weight=weight, embeds=not is_output, scores=is_output
    )
    prefix = name.removesuffix("weight")
    for key in table.method_parameters:
        entry = state["model"].get(f"{prefix}method_parameters.{key}")
        if entry is None or entry.shape != table.method_parameters[key].shape:
            needs = f"the parameter {key!r} of --sharing-method {method.name}"
            raise ValueError(f"TABLE: needs {needs}; got {path} without it beside {name}. Use a whole checkpoint.")
        table.method_parameters[key].copy_(entry)
    words = torch.arange(size)
    return table.rows(words).matrix if is_output else table.embed(words)


def _missing(state: dict[str, Any], role: str, path: Path) -> ValueError:
    about = f"--role: needs a table that the model has; got {role} ({ROLES[role]}) for {path}, which has none."
    return _unknown(state, about)


def _unknown(state: dict[str, Any], about: str) -> ValueError:
    matrices = {key: entry for key, entry in state["model"].items() if isinstance(entry, Tensor) and entry.dim() == 2}
    shown = sorted(matrices, key=lambda key: (not is_table(key), -len(matrices[key])))[:SHOWN]
    listed = ", ".join(f"{key} {tuple(matrices[key].shape)}" for key in shown) or "another file: this has no matrix"
    return ValueError(f"{about} Use --tensor with one of {listed}.")
