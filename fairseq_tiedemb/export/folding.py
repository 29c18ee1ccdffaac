"""Folds embedding and output layers: into a matrix of input vectors, and into a matrix and a bias that give the logits.

With features h, all sharing methods, projections and factors give logits that are affine in h, except for non-linear
feature maps:

    logits(h) = M h + b        M (V, D), b (V,)

so b = logits(0), and the columns of M are logits(e_d) - b for the unit vectors e_d, whatever the method.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_tiedemb.export.targets import COMMANDS

CHUNK = 64  # unit vectors whose logits are computed at once
ROUNDING = 1e-9  # the largest error of it in float64, relative to the largest logit


@torch.no_grad()
def fold_output(scores: Callable[[Tensor], Tensor], width: int, *, named: str) -> tuple[Tensor, Tensor]:
    """Returns the matrix M and the bias b that give the same logits as an output layer.

    Args:
        scores: maps features (N, D) to logits (N, V), in float64: in float32, biases would take the last digits of M.
        width: D.
        named: the layer, by its flags, for errors.

    Raises:
        ValueError: if the logits are not affine in the features.
    """
    bias_V = scores(torch.zeros(1, width, dtype=torch.float64))[0]
    matrix_VD = bias_V.new_empty(len(bias_V), width)
    for start in range(0, width, CHUNK):
        units = torch.zeros(min(CHUNK, width - start), width, dtype=torch.float64)
        units.diagonal(start).fill_(1.0)
        matrix_VD[:, start : start + CHUNK] = (scores(units) - bias_V).t()
    features = torch.randn(4, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    features *= torch.tensor([[0.1], [1.0], [10.0], [-10.0]])
    expected, folded = scores(features), nn.functional.linear(features, matrix_VD, bias_V)
    if not torch.allclose(folded, expected, rtol=0.0, atol=ROUNDING * max(1.0, expected.abs().max().item())):
        needs = "logits that are affine in the features, a matrix and a bias"
        raise ValueError(f"CHECKPOINT: needs {needs}; got {named}, whose logits are not. Use {COMMANDS}.")
    return matrix_VD, bias_V


@torch.no_grad()
def fold_tables(model: Any) -> None:
    """Replaces a Transformer's tables in place, by plain vectors of the model's width and by M and b."""
    model.double()  # tied tables stay equal to the last digit, and are stored once
    decoder = model.decoder
    into, out_of = ([] if part is None else [part] for part in (decoder.project_in_dim, decoder.project_out_dim))
    embed, scores = nn.Sequential(decoder.embed_tokens, *into), nn.Sequential(*out_of, decoder.output_projection)
    table = getattr(decoder.embed_tokens, "table", decoder.embed_tokens)
    named = f"--sharing-method {getattr(table, 'method', 'plain')}"
    matrix_VD, bias_V = fold_output(scores, decoder.embed_dim, named=named)
    encoders = [(model.encoder, model.encoder.embed_tokens)] if hasattr(model, "encoder") else []
    for part, layer in ((decoder, embed), *encoders):
        vectors_VD = layer(torch.arange(len(part.embed_tokens.weight)))
        part.embed_tokens = nn.Embedding.from_pretrained(vectors_VD)
    decoder.output_projection = linear = nn.Linear(1, 1, bias=bool(bias_V.any()))
    linear.weight = nn.Parameter(matrix_VD, requires_grad=False)
    if linear.bias is not None:
        linear.bias = nn.Parameter(bias_V, requires_grad=False)
    decoder.project_in_dim = decoder.project_out_dim = None
    model.float()
