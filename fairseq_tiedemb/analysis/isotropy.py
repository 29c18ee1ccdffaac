"""How evenly the rows of embedding tables point in all directions, and the singular values of the tables."""

import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_tiedemb.analysis.columns import aligned
from fairseq_tiedemb.analysis.norms import Norms


def mean_cosine(rows_VD: Tensor) -> float:
    """Returns the mean cosine of two different rows, 0 for even directions and 1 for one direction; O(V D).

    Rows of zeros, which have no direction, are left out.

    Source: Gao et al. 2019, whose regularization is of this number.
    """
    units = torch.nn.functional.normalize(rows_VD, dim=1)
    count = int(units.any(1).sum())
    return float(units.sum(0).square().sum() - count) / (count * (count - 1) or math.nan)


def partition_ratio(rows_VD: Tensor, directions_DD: Tensor) -> float:
    """Returns min Z(a) / max Z(a), Z(a) = sum_v exp(a . w_v), over the columns a of `directions_DD` and -a.

    It is 1 if all directions are alike. Source: Arora et al. 2016 (Z); Mu & Viswanath 2018 (the ratio, over the
    eigenvectors of W^T W, whose signs are free).
    """
    products = rows_VD @ directions_DD
    log_z = torch.cat((products, -products), 1).logsumexp(0)
    return float((log_z.min() - log_z.max()).exp())


def isotropy(tables: Sequence[Norms]) -> str:
    """Formats the measures, one column per table; singular values fall from the first to the last."""
    places = (f"singular value, {place}" for place in ("1st", "2nd", "median", "last"))
    columns = [["", "mean cosine", "partition ratio", *places]]
    for one in tables:
        rows = one.words_VD.double()
        _, directions = torch.linalg.eigh(rows.t() @ rows)
        values = torch.linalg.svdvals(rows).tolist()  # the roots of eigenvalues are noise below 1e-8 of the largest
        chosen = [values[0], values[1] if len(values) > 1 else math.nan, statistics.median(values), values[-1]]
        measures = [mean_cosine(rows), partition_ratio(rows, directions), *chosen]
        columns.append([one.label, *(f"{number:.4g}" for number in measures)])
    return "\n".join(aligned(list(zip(*columns, strict=True))))
