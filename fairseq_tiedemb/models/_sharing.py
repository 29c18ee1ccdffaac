"""Describes what a model shares, for the log line of a new model and for `fairseq-tiedemb arch`."""

from typing import Any

from fairseq.modules import AdaptiveInput

from ..embedding import SharedEmbedding
from ..modules.factorized import FactorizedInput

WAYS = {2: "weight tying", 3: "three-way weight tying"}


def tables_by_role(model: Any) -> dict[str, list[SharedEmbedding]]:
    """The tables of each role: one per band of an adaptive layer, none for other kinds of layers."""
    output = list(model.output.tables().values())
    encoder = getattr(model, "encoder", None)
    if encoder is None:
        return {"input": _tables(model.decoder.embed_tokens), "output": output}
    return {
        "encoder input": _tables(encoder.embed_tokens),
        "decoder input": _tables(model.decoder.embed_tokens),
        "decoder output": output,
    }


def _tables(embed_tokens: Any) -> list[SharedEmbedding]:
    if isinstance(embed_tokens, AdaptiveInput):
        return [band[0] for band in embed_tokens.embeddings]
    table = embed_tokens.table if isinstance(embed_tokens, FactorizedInput) else embed_tokens
    return [table] if isinstance(table, SharedEmbedding) else []


def groups(model: Any) -> list[list[str]]:
    """Groups of roles that share their tables."""
    roles_of: dict[tuple[int, ...], list[str]] = {}
    for role, tables in tables_by_role(model).items():
        key = tuple(id(table) for table in tables) or (-len(roles_of) - 1,)  # roles without a table share nothing
        roles_of.setdefault(key, []).append(role)
    return list(roles_of.values())


def sharing(model: Any) -> str:
    """A phrase for the roles that share a table, such as "input = output (weight tying)"."""
    shared = [roles for roles in groups(model) if len(roles) > 1]
    if not shared:
        return "nothing"
    bands = " in bands" if any(len(tables) > 1 for tables in tables_by_role(model).values()) else ""
    way = "" if shared[0] == ["encoder input", "decoder input"] else f" ({WAYS[len(shared[0])]})"
    return " = ".join(shared[0]) + bands + way


def projection(model: Any) -> str:
    """A phrase for P and its bias, such as ", with P", empty without P."""
    if model.projection is None:
        return ""
    return ", with P and its bias" if model.projection.bias is not None else ", with P"


def describe(model: Any, name: str) -> str:
    """One line: what is shared and how, and the number of parameters of a ``TiedModel``; ``name`` is its architecture.

    Papers count parameters without the rows of ``<s>`` and ``<pad>``, which the line states too.
    """
    roles = tables_by_role(model)
    size = {role: sum(_size(table) for table in tables) for role, tables in roles.items()}
    total = sum(parameter.numel() for parameter in model.parameters())
    parts, in_tables = [], 0
    for names in groups(model):
        if roles[names[0]]:
            frozen = [role + ("" if roles[role][0].weight.requires_grad else " (frozen)") for role in names]
            parts.append(f"{' = '.join(frozen)} {size[names[0]]:,}")
            in_tables += size[names[0]]
    own = 0 if model.output.tables() else sum(parameter.numel() for parameter in model.output.head.parameters())
    if own:
        parts.append(f"output layer {own:,}")
    methods = {table.method: None for tables in roles.values() for table in tables}
    extra = sum(
        2 * (_size(table) // table.num_embeddings) for table in _first_bands(roles) if table.padding_idx is not None
    )
    what = sharing(model)
    return (
        f"{name}: shares {what} by method {', '.join(methods) or 'plain'}{projection(model)}; {total:,} parameters: "
        f"{', '.join([*parts, ''])}rest {total - in_tables - own:,} (embeddings {100 * in_tables / total:.1f}%); "
        f"{total - extra:,} without the rows of <s> and <pad>" + _remedy(model, name, what)
    )


def _size(table: SharedEmbedding) -> int:
    return sum(parameter.numel() for parameter in table.parameters())


def _first_bands(roles: dict[str, list[SharedEmbedding]]) -> list[SharedEmbedding]:
    """The distinct tables that may have rows of fairseq's special symbols."""
    return list({id(tables[0]): tables[0] for tables in roles.values() if tables}.values())


def _remedy(model: Any, name: str, what: str) -> str:
    """Flags that make a ``tied_*`` model share its tables, for a model that shares nothing."""
    if what != "nothing" or not name.startswith("tied_"):
        return ""
    flags = "--share-decoder-input-output-embed shares"
    if getattr(model.decoder, "adaptive_softmax", None) is not None and hasattr(model.decoder, "output_projection"):
        flags = "--adaptive-input --tie-adaptive-weights shares, in language models"
    elif hasattr(model, "encoder"):
        flags += ", and --share-all-embeddings three ways"
    return f"; its name says what it can do: {flags}"
