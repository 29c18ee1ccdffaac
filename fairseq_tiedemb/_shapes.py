"""Argument checks for tables and losses: a wrong shape that broadcasts would silently give wrong numbers."""

import math
from numbers import Integral
from typing import Any

import torch
from torch import Tensor


def check_table_size(num_embeddings: int, embedding_dim: int, padding_idx: int | None, weight: Tensor | None) -> None:
    """Checks the arguments of ``SharedEmbedding``; the ValueError names the first bad one."""
    for name, size in (("num_embeddings", num_embeddings), ("embedding_dim", embedding_dim)):
        if not isinstance(size, Integral) or size < 1:  # numpy's, too
            raise ValueError(f"{name}: needs a positive whole number; got {size!r}. Use 1 or more.")
    if padding_idx is not None and (
        not isinstance(padding_idx, Integral) or not -num_embeddings <= padding_idx < num_embeddings
    ):
        needs = f"one of {num_embeddings} rows"
        raise ValueError(f"padding_idx: needs {needs}; got {padding_idx!r}. Use the dictionary's pad().")
    if weight is None:
        return
    if not isinstance(weight, torch.nn.Parameter) or not weight.is_floating_point():
        needs = "an nn.Parameter of floating-point numbers"
        got = f"a {type(weight).__name__} of {getattr(weight, 'dtype', None)}"
        raise ValueError(f"weight: needs {needs}; got {got}. Use nn.Parameter(weight.float()).")
    if weight.shape != (num_embeddings, embedding_dim):
        needs = f"shape ({num_embeddings}, {embedding_dim}), num_embeddings and embedding_dim"
        raise ValueError(f"weight: needs {needs}; got {tuple(weight.shape)}. Use the sizes of the table.")


def check_features(features: Tensor, width: int, *, name: str = "features") -> Tensor:
    """Returns features (*, width) after checking their width; the ValueError calls them ``name``."""
    if not features.dim() or features.shape[-1] != width:
        needs, got = f"shape (*, {width}), as wide as the table's rows", tuple(features.shape)
        raise ValueError(f"{name}: needs {needs}; got {got}. Use a projection, or a table of that width.")
    return features


def check_loss_inputs(
    features_ND: Tensor, table_VD: Tensor, target_N: Tensor, terms: dict[str, Any], similar_ND: Any, soft_cap: Any
) -> None:
    """Checks the arguments of ``output_loss``; the ValueError names the first bad one.

    ``terms`` holds scale, offset and bias, (V,) or None.
    """
    if table_VD.dim() != 2 or not table_VD.numel() or not table_VD.is_floating_point():
        needs, found = "shape (V, D), with at least one row, of floats", tuple(table_VD.shape)
        raise ValueError(f"table: needs {needs}; got {found} of {table_VD.dtype}. Use a matrix, or table.float().")
    size, width = table_VD.shape
    check_features(features_ND, width)
    check_pairs(features_ND, target_N, size)
    for name, term in terms.items():
        if term is not None and (not isinstance(term, Tensor) or term.shape != (size,)):
            got = tuple(term.shape) if isinstance(term, Tensor) else repr(term)
            raise ValueError(f"{name}: needs shape ({size},), one number per token; got {got}. Use {name}.expand(V).")
    if similar_ND is not None and similar_ND.shape != features_ND.shape:
        needs, got = f"the features' shape {tuple(features_ND.shape)}", tuple(similar_ND.shape)
        raise ValueError(f"similar: needs {needs}; got {got}. Use a row per token.")
    if soft_cap is not None and not 0 < soft_cap < math.inf:
        raise ValueError(f"soft_cap: needs a positive, finite number; got {soft_cap}. Use None for no cap.")


def check_pairs(features_ND: Tensor, target_N: Tensor, size: int) -> None:
    """Checks features (N, D) and their target tokens, (N,) of V (``size``); the ValueError names the first problem."""
    if features_ND.dim() != 2:
        got = tuple(features_ND.shape)
        raise ValueError(f"features: needs shape (N, D), a row per token; got {got}. Use features.flatten(0, -2).")
    check_target(target_N, len(features_ND), size)


def check_target(target_N: Tensor, count: int, size: int) -> None:
    """Checks that a head's target tokens are N (``count``) of V (``size``); the ValueError names the first problem.

    The range is checked on a CPU alone, since a GPU would have to wait for it, and a compiled graph would break in two.
    There ``gather`` and ``index_select`` refuse indices out of range, and the loss's kernel makes the loss and the
    gradients NaN; advanced indexing takes -1 for the last row.
    """
    if target_N.shape != (count,):
        needs = f"shape ({count},), one token per feature vector"
        use = "target.flatten(), and the features of these tokens alone"
        raise ValueError(f"target: needs {needs}; got {tuple(target_N.shape)}. Use {use}.")
    if target_N.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"target: needs token indices, int64 or int32; got {target_N.dtype}. Use target.long().")
    if target_N.device.type == "cpu" and len(target_N) and not torch.compiler.is_compiling():
        lowest, highest = (int(word) for word in target_N.aminmax())
        if lowest < 0 or highest >= size:
            needs, got = f"tokens in [0, {size})", lowest if lowest < 0 else highest
            raise ValueError(f"target: needs {needs}; got {got}. Use features and targets without padding.")
