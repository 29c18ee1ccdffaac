"""Describes a new model, for the log: what it shares, and where its parameters are."""

from typing import Any

from torch import nn

from ..embedding import SharedEmbedding
from ..plan import Plan, Table


def layers_of(model: Any, table: Table) -> list[SharedEmbedding]:
    """The modules of a table in a model's plan: one, or one per band."""
    role = table.roles[0]
    if role.endswith("output"):
        return list(model.output.tables().values())
    side = model.encoder if role == "encoder input" else model.decoder
    return [layer for layer in side.embed_tokens.modules() if isinstance(layer, SharedEmbedding)]


def describe(model: Any, name: str) -> str:
    """One line: what is shared and how, and the number of parameters of a ``TiedModel``; ``name`` is its architecture.

    Papers count parameters without the rows of ``<s>`` and ``<pad>``, which the line states too.
    """
    plan: Plan = model.plan
    total = size(model)
    parts, in_tables, marks = [], 0, 0
    for table in plan.tables:
        first, *others = layers_of(model, table)
        in_table = sum(map(size, (first, *others)))
        frozen = "" if first.weight.requires_grad else " (frozen)"
        parts.append(f"{' = '.join(role + frozen for role in table.roles)} {in_table:,}")
        in_tables += in_table
        marks += 0 if first.padding_idx is None else 2 * (size(first) // first.num_embeddings)
    own = 0 if model.output.tables() else size(model.output.head)
    if own:
        parts.append(f"output layer {own:,}")
    return (
        f"{name}: shares {plan.shared} by method {plan.method}{plan.with_projection}; {total:,} parameters: "
        f"{', '.join([*parts, ''])}rest {total - in_tables - own:,} (embeddings {100 * in_tables / total:.1f}%); "
        f"{total - marks:,} without the rows of <s> and <pad>{_remedy(model, name)}"
    )


def size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _remedy(model: Any, name: str) -> str:
    """Flags that make a ``tied_*`` model share its tables, for a model that shares nothing."""
    plan, family = model.plan, model.family
    # A tree has no table to share, and one table of all words does not fit bands.
    can_share = plan.bands or (plan.output is not None and not any(table.bands for table in plan.tables))
    if plan.shared != "nothing" or not name.startswith("tied_") or not can_share:
        return ""
    flags = "--share-decoder-input-output-embed shares"
    if plan.bands and family.fairseqs:
        flags = "--adaptive-input --tie-adaptive-weights shares, in language models"
    elif family.translates:
        flags += ", and --share-all-embeddings three ways"
    return f"; tied_ in its name says what it can do: {flags}"
