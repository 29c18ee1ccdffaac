"""Splits the gradient of an embedding table into the part of the input embedding and the part of the output embedding.

Source: Press & Wolf 2016, section 3: in a tied model a row's update is the sum of both parts; rows of words that the
batch does not read get the output's part alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.modules import AdaptiveInput
from torch import Tensor

from fairseq_tiedemb.analysis.columns import aligned


@dataclass(frozen=True)
class RoleGradients:
    """The two parts of one batch's gradient.

    Attributes:
        input_VD: gradient through the input embedding.
        output_VE: gradient through the logits.
        read: rows that the batch reads, without padding.
        tied: whether both parts are of one table, whose gradient is their sum.
    """

    input_VD: Tensor
    output_VE: Tensor
    read: Tensor
    tied: bool


def role_gradients(model: Any, batch: dict[str, Any], *, pad: int) -> RoleGradients:
    """Computes both parts of the gradient of a batch's mean cross entropy, by one backward pass each.

    With x = embed(words) as a leaf, the first backward pass gives dL/dx, and dL/dV for the output table V. The second,
    from dL/dx through ``embed``, gives dL/dU for the input table U. If U = V = S, dL/dS is their sum. `pad` is the
    padding row. The model is not changed.

    Raises:
        ValueError: if the model is adaptive, or has no output table with one row per word.
    """
    embed, weight_in, weight_out = _tables(model)
    vectors: list[Tensor] = []

    def cut(module: Any, inputs: Any, output: Tensor) -> Tensor:
        vectors.append(output)
        return output.detach().requires_grad_()

    leaf: list[Tensor] = []
    hooks = [embed.register_forward_hook(cut), embed.register_forward_hook(lambda m, i, output: leaf.append(output))]
    try:
        scores = model(**batch["net_input"])
        log_p_BTV = model.get_normalized_probs(scores, log_probs=True, sample=batch)
    finally:
        for hook in hooks:
            hook.remove()
    target = batch["target"]
    is_word = target.ne(pad)
    loss = -log_p_BTV.gather(2, target.unsqueeze(2)).squeeze(2)[is_word].mean()
    from_vectors, output = torch.autograd.grad(loss, [leaf[0], weight_out])
    (into_table,) = torch.autograd.grad(vectors[0], weight_in, from_vectors)
    source = batch["net_input"]["src_tokens"]
    return RoleGradients(into_table, output, source[source.ne(pad)].unique(), weight_in is weight_out)


def _tables(model: Any) -> tuple[Any, Tensor, Tensor]:
    """Returns the input embedding's module, its table, and the output table."""
    decoder = model.decoder
    embed = getattr(decoder, "embed_tokens", None)
    adaptive = isinstance(embed, AdaptiveInput) or getattr(decoder, "adaptive_softmax", None) is not None
    if embed is None or adaptive:
        raise ValueError(
            f"CHECKPOINT: needs a model with one table for all words; got {type(model).__name__} with "
            f"{'adaptive tables' if adaptive else 'none'}. Use one without --adaptive-input, --adaptive-softmax-cutoff."
        )
    if hasattr(model, "output"):  # our models
        tables = [table.weight for table in model.output.tables().values()]
        if [len(table) for table in tables] != [len(embed.weight)]:
            shown = ", ".join(str(tuple(table.shape)) for table in tables) or "none"
            raise ValueError(
                f"CHECKPOINT: needs an output table with a row for each of {len(embed.weight):,} words; got "
                f"{type(model).__name__} with {shown}. Use one with the full softmax."
            )
        return embed, embed.weight, tables[0]
    for name in ("output_projection", "fc_out"):
        if getattr(decoder, name, None) is not None:
            return embed, embed.weight, getattr(decoder, name).weight
    return embed, embed.weight, embed.weight  # stock fairseq's recurrent decoders, tied


def describe(batches: Iterable[RoleGradients]) -> list[str]:
    """Formats mean gradient norms of the rows that batches read, and of all other rows, as lines of text."""
    rows: dict[str, list[Tensor]] = {"input": [], "output": [], "sum": []}
    others: list[Tensor] = []
    whole: list[Sequence[Tensor]] = []
    tied, count = False, 0
    for gradients in batches:
        count, tied = count + 1, gradients.tied
        rows["input"].append(gradients.input_VD[gradients.read].norm(dim=1))
        rows["output"].append(gradients.output_VE[gradients.read].norm(dim=1))
        if tied:
            rows["sum"].append((gradients.input_VD + gradients.output_VE)[gradients.read].norm(dim=1))
        is_other = torch.ones(len(gradients.output_VE), dtype=torch.bool)
        is_other[gradients.read] = False
        others.append(gradients.output_VE[is_other].norm(dim=1))
        whole.append((gradients.input_VD.norm(), gradients.output_VE.norm()))
    norms = {part: torch.cat(parts) for part, parts in rows.items() if parts}
    share = norms["input"] / (norms["input"] + norms["output"])
    columns = [["norm of the gradient, mean"], ["rows read"], ["other rows"], ["whole table"]]
    of_tables = {"input": [float(one) for one, _ in whole], "output": [float(other) for _, other in whole]}
    of_others = {"input": "0", "output": f"{torch.cat(others).mean():.2e}"}
    for part in ("input", "output"):
        cells = [f"{part}'s part", f"{norms[part].mean():.2e}", of_others[part], f"{sum(of_tables[part]) / count:.2e}"]
        for column, cell in zip(columns, cells, strict=True):
            column.append(cell)
    per_batch = len(share) / count
    lines = [f"gradients of {count:,} batches, {'tied' if tied else 'untied'}: {per_batch:.0f} rows are read in each"]
    lines += aligned(columns)
    lines.append(f"rows read: |input's part| / (|input's part| + |output's part|) = {share.mean():.3f} on average")
    if tied:
        first, second = norms["input"] / norms["sum"], norms["output"] / norms["sum"]
        lines.append(
            f"rows read: |input's part| / |sum| = {first.mean():.3f}, |output's part| / |sum| = {second.mean():.3f}; "
            "other rows: 0 and 1"
        )
    return lines
