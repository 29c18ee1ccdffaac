"""Measures what updates the rows of an embedding table: words of batches, the table's two roles, repeated words.

Source: Press & Wolf 2016, section 3: "vectors representing rare words are updated only a small number of times. The
output embedding updates every row at each timestep." In a tied model a row's update is the sum of both parts; rows of
words that the batch does not read get the output's part alone. In the row of the input word i_t the output's part grows
with p(i_t | i_1..i_t), which "is expected to be close to zero, since words seldom appear twice in a row".
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq.modules import AdaptiveInput
from torch import Tensor

from fairseq_tiedemb.analysis.columns import aligned, bands_of_ranks
from fairseq_tiedemb.analysis.sentence_scores import log_probabilities

FEW = 10  # updates of a row
SHOWN = 3  # repeated words


class InputUpdates(NamedTuple):
    """How often one epoch updates the rows of an input embedding."""

    updates_V: np.ndarray  # batches that contain the word
    counts_V: np.ndarray  # tokens of the word
    rows_of_batches: np.ndarray  # different words in each batch

    def describe(self) -> list[str]:
        """Formats the counts as lines of text, by bands of word frequency."""
        size, batches = len(self.updates_V), len(self.rows_of_batches)
        rows, few = self.rows_of_batches, self.updates_V <= FEW
        per_batch = f"{rows.mean():.0f} different rows of {size:,} ({rows.mean() / size:.1%})"
        table = [["words by frequency", "updates an epoch", "share of batches"]]
        order = np.argsort(-self.counts_V, kind="stable")
        for low, high in bands_of_ranks(size):
            mean = self.updates_V[order[low:high]].mean()
            table.append([f"{low + 1:,}-{high:,}", f"{mean:,.1f}", f"{mean / batches:.2%}"])
        return [
            f"an epoch: {self.counts_V.sum():,} tokens in {batches:,} batches",
            f"input: a batch updates {per_batch}, {rows.min():,} to {rows.max():,}",
            f"input: an epoch updates {(self.updates_V > 0).sum():,} rows; {few.mean():.1%} of all are updated {FEW} "
            f"times or less, {(self.counts_V <= FEW).mean():.1%} are of words that come {FEW} times or less",
            f"output, by full softmax: each batch updates all {size:,} rows, {batches:,} times an epoch",
            *aligned(table),
        ]


def input_updates(batches: Iterable[np.ndarray], size: int, *, not_words: tuple[int, ...] = ()) -> InputUpdates:
    """Counts the updates of one epoch, of the input tokens of one batch or more, in any shape.

    `size` is V; `not_words` are rows to leave out, such as padding.
    """
    updates, counts, rows = np.zeros(size, np.int64), np.zeros(size, np.int64), []
    kept = np.delete(np.arange(size), not_words)
    for batch in batches:
        batch_counts = np.bincount(np.asarray(batch).ravel(), minlength=size)
        updates += batch_counts > 0
        counts += batch_counts
        rows.append(np.count_nonzero(batch_counts[kept]))
    return InputUpdates(updates[kept], counts[kept], np.array(rows))


class RoleGradients(NamedTuple):
    """The two parts of one batch's gradient: through the input embedding, and through the logits."""

    input_VD: Tensor
    output_VE: Tensor
    read: Tensor  # rows that the batch reads, without padding
    tied: bool  # whether both parts are of one table, whose gradient is their sum


def role_gradients(model: Any, batch: dict[str, Any], *, pad: int) -> RoleGradients:
    """Computes both parts of the gradient of a batch's mean cross entropy, by one backward pass each.

    With x = embed(words) as a leaf, the first backward pass gives dL/dx, and dL/dV for the output table V. The second,
    from dL/dx through ``embed``, gives dL/dU for the input table U. If U = V = S, dL/dS is their sum. `pad` is the
    padding row. The model is not changed. ValueError if it is adaptive, or has no output table with one row per word.
    """
    embed, weight_out = _tables(model)
    cuts: list[tuple[Tensor, Tensor]] = []  # x as the table computes it, and as a leaf

    def cut(module: Any, inputs: Any, output: Tensor) -> Tensor:
        cuts.append((output, output.detach().requires_grad_()))
        return cuts[-1][1]

    with embed.register_forward_hook(cut):
        log_p_BTV = model.get_normalized_probs(model(**batch["net_input"]), log_probs=True, sample=batch)
    target = batch["target"]
    is_word = target.ne(pad)
    loss = -log_p_BTV.gather(2, target.unsqueeze(2)).squeeze(2)[is_word].mean()
    vectors, leaf = cuts[0]
    from_vectors, output = torch.autograd.grad(loss, [leaf, weight_out])
    (into_table,) = torch.autograd.grad(vectors, embed.weight, from_vectors)
    source = batch["net_input"]["src_tokens"]
    return RoleGradients(into_table, output, source[source.ne(pad)].unique(), embed.weight is weight_out)


def _tables(model: Any) -> tuple[Any, Tensor]:
    """Returns the input embedding's module, and the output table."""
    decoder = model.decoder
    embed: Any = getattr(decoder, "embed_tokens", None)
    adaptive = isinstance(embed, AdaptiveInput) or getattr(decoder, "adaptive_softmax", None) is not None
    layers = [getattr(decoder, name, None) for name in ("output_projection", "fc_out")]
    # Stock fairseq's recurrent decoders have neither if they are tied; its fconv_lm's is normalised anew at each pass.
    scores = hasattr(model, "output") or any(layers) or getattr(decoder, "share_input_output_embed", False)
    if adaptive or not scores or getattr(embed, "weight", None) is None:
        got = f"{type(model).__name__} with {'adaptive tables' if adaptive else 'none'}"
        use = "one without --adaptive-input, --adaptive-softmax-cutoff"
        raise ValueError(f"CHECKPOINT: needs a model with one table for all words; got {got}. Use {use}.")
    if hasattr(model, "output"):  # our models
        tables = [table.weight for table in model.output.tables().values()]
    else:
        tables = [next((layer.weight for layer in layers if layer is not None), embed.weight)]
    if [len(table) for table in tables] != [len(embed.weight)]:
        shown = ", ".join(str(tuple(table.shape)) for table in tables) or "none"
        needs = f"an output table with a row for each of {len(embed.weight):,} words"
        got = f"{type(model).__name__} with {shown}"
        raise ValueError(f"CHECKPOINT: needs {needs}; got {got}. Use one with the full softmax of all words.")
    return embed, tables[0]


def describe_gradients(batches: Iterable[RoleGradients]) -> list[str]:
    """Formats mean gradient norms of the rows that batches read, and of all other rows, as lines of text."""
    norms: dict[str, list[Tensor]] = {}
    tied, count = False, 0
    for gradients in batches:
        count, tied = count + 1, gradients.tied
        others = torch.ones(len(gradients.output_VE), dtype=torch.bool).index_fill(0, gradients.read, False)
        of_batch = {
            "input": gradients.input_VD[gradients.read].norm(dim=1),
            "output": gradients.output_VE[gradients.read].norm(dim=1),
            "others": gradients.output_VE[others].norm(dim=1),
            "whole input": gradients.input_VD.norm().view(1),
            "whole output": gradients.output_VE.norm().view(1),
        }
        if tied:
            of_batch["sum"] = (gradients.input_VD + gradients.output_VE)[gradients.read].norm(dim=1)
        for name, values in of_batch.items():
            norms.setdefault(name, []).append(values)
    of = {name: torch.cat(values) for name, values in norms.items()}
    first, second = of["input"], of["output"]
    rows = [["norm of the gradient, mean", "rows read", "other rows", "whole table"]]
    for part, others_mean in (("input", "0"), ("output", f"{of['others'].mean():.2e}")):
        rows.append([f"{part}'s part", f"{of[part].mean():.2e}", others_mean, f"{of[f'whole {part}'].mean():.2e}"])
    lines = [
        f"gradients of {count:,} batches, {'tied' if tied else 'untied'}: {len(first) / count:.0f} rows read in each",
        *aligned(rows),
        "rows read: |input's part| / (|input's part| + |output's part|) = "
        f"{(first / (first + second)).mean():.3f} on average",
    ]
    if tied:
        lines.append(
            f"rows read: |input's part| / |sum| = {(first / of['sum']).mean():.3f}, |output's part| / |sum| = "
            f"{(second / of['sum']).mean():.3f}; other rows: 0 and 1"
        )
    return lines


class Repeats(NamedTuple):
    """Repetition in a text, over the tokens that follow a word of their own sentence."""

    probabilities: np.ndarray  # p(w_{t-1} | history), the model's probability of a repeat, float64
    repeated: list[int]  # the words that the text does repeat, once per repeat

    def describe(self, dictionary: Any) -> list[str]:
        """Formats the means and the most repeated words as lines of text."""
        count = len(self.probabilities)
        often = [f"{dictionary[word]} {times:,}" for word, times in Counter(self.repeated).most_common(SHOWN)]
        listed = f" ({', '.join(often)})" if often else ""
        return [
            f"repeat probability p(w_t-1 | history): mean {self.probabilities.mean():.4f}, median "
            f"{np.median(self.probabilities):.1e}, over {count:,} tokens that follow a word",
            f"repeats in the text: {len(self.repeated) / count:.4f}, {len(self.repeated):,} tokens{listed}",
        ]


@torch.no_grad()
def repeats(model: Any, batches: Iterable[dict[str, Any]], dictionary: Any) -> Repeats:
    """Scores every word of a text as if it were repeated, by a language model in evaluation mode.

    `batches` are fairseq's in order, whose ``src_tokens`` are the previous words. Tokens after ``</s>`` or padding have
    no word to repeat; ValueError if none follows a word.
    """
    repeat_probabilities, repeated = [], []
    for batch in batches:
        if not batch:  # fairseq gives shards one length by empty batches
            continue
        previous, target = batch["net_input"]["src_tokens"], batch["target"]
        follows = target.ne(dictionary.pad())
        for symbol in (dictionary.pad(), dictionary.eos(), dictionary.bos()):  # which are no words
            follows &= previous.ne(symbol)
        repeat_probabilities.append(log_probabilities(model, previous, batch["net_input"])[follows].double().exp())
        repeated += previous[follows & previous.eq(target)].tolist()
    probabilities = torch.cat(repeat_probabilities).numpy() if repeat_probabilities else np.empty(0)
    if not len(probabilities):
        raise ValueError("--gen-subset: needs sentences of two words or more; got none. Use another.")
    return Repeats(probabilities, repeated)
