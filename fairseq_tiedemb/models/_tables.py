"""Builds what a plan says: the tables and the output layer of every model."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from torch import Tensor, nn

from ..embedding import SharedEmbedding
from ..modules.factorized import FactorizedInput, gaussian_linear
from ..outputs import ADAPTIVE, OUTPUT_HEADS, SOFTMAX, Bands, OutputLayer, embed_bands, tie_bands
from ..plan import Plan, Table


class Tables(NamedTuple):
    """The tables of a model; roles that share a table hold the same object."""

    inputs: dict[str, Any]  # layers that give the input vectors, by role
    output: OutputLayer  # whose P the decoder registers


def build_tables(
    plan: Plan,
    words: Any,
    counts: Callable[[], Tensor | None] = lambda: None,
    *,
    std: float = 0.01,
    projection: Callable[..., nn.Linear] = gaussian_linear,
    theirs: Mapping[str, Any] | None = None,
) -> Tables:
    """Builds the tables and the output layer of a model that predicts the ``words`` of a dictionary.

    ``counts``, of the training text (V,) or None, is called only for a head that needs them. ``std`` is that of new
    tables, ``projection`` gives P by its widths and bias; tables take over the parameters of ``theirs``, by role.
    """
    theirs = theirs or {}
    built = {table: _layer(plan, table, std, theirs.get(table.roles[0])) for table in reversed(plan.tables)}
    inputs = {role: built[table] for table in plan.tables for role in table.roles if role.endswith("input")}
    p = None if plan.projection is None else projection(plan.features, plan.projection, bias=plan.projection_bias)
    if plan.head == ADAPTIVE:
        bands = _bands(plan, inputs, theirs.get("output"))
        return Tables(inputs, OutputLayer(bands, borrowed=True, projection=p))
    head = OUTPUT_HEADS[plan.head]
    table: Any = None if plan.output is None else built[plan.output]
    own = getattr(table, "table", table)
    if own is None:  # a head that takes the width alone
        own = SharedEmbedding(len(words), plan.projection or plan.features, None, bias=plan.bias, embeds=False)
    over: Any = head.built(plan.options, own, None if plan.head == SOFTMAX else counts(), words)
    if plan.output is None:
        return Tables(inputs, OutputLayer(over, projection=p))
    factor = None if plan.rank is None else gaussian_linear(plan.projection or plan.features, plan.rank)
    over = None if over is own else over
    return Tables(inputs, OutputLayer(own, borrowed=plan.tied, projection=p, factor=factor, over=over))


def _layer(plan: Plan, table: Table, std: float, theirs: Any) -> Any:
    """A table, or an input layer over it; with the parameters of fairseq's layer, if it has them."""
    if table.bands:
        factor = getattr(plan.options, "adaptive_softmax_factor", None)
        width = table.width
        bands = theirs or AdaptiveInput(table.rows, table.padding_idx, width, factor, width, list(table.bands))
        embed_bands(bands, plan.method, plan.constants, scores=table.scores)
        return bands
    weight = None if theirs is None or plan.rank or len(theirs.weight) != table.rows else theirs.weight
    shared = SharedEmbedding(
        table.rows,
        plan.rank or table.width,
        table.padding_idx,
        method=plan.method,
        bias=plan.bias and table.scores,
        std=std if theirs is None else None,
        weight=weight,
        embeds=table.embeds,
        scores=table.scores,
        constants=plan.constants,
    )
    return FactorizedInput(shared, table.width) if plan.rank and table.embeds else shared


def _bands(plan: Plan, inputs: dict[str, Any], softmax: Any) -> Bands:
    """The adaptive softmax, fairseq's or, for None, a new one, over the bands of the input if it is tied."""
    tables = inputs["input"] if plan.tied else None
    if softmax is None:
        width, factor = plan.projection or plan.features, plan.options.adaptive_softmax_factor
        softmax = AdaptiveSoftmax(plan.bands[-1], width, list(plan.bands), 0.0, factor=factor, adaptive_inputs=tables)
    if tables is not None:
        tie_bands(softmax, tables)
    return Bands(softmax)
