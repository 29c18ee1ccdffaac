"""Scale and offset of logits, and factors of input vectors, by a sharing method and the norms of rows."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .sharing import sharing_method

# Lower bound for squared norms in a division: a row with norm 1e-3 has no direction worth keeping.
SMALLEST_SQUARED_NORM = 1e-6


class NormTerms:
    """Computes a sharing method's scale and offset of logits from squared norms.

    The row ``padding_idx``, if any, counts as of norm 1.
    """

    def __init__(self, method: str, padding_idx: int | None):
        self.method, self.padding_idx = method, padding_idx

    def bounded(self, norms: Tensor, words: Tensor) -> Tensor:
        """Squared norms with a lower bound, and 1 for padding; ``words`` are the tokens of the norms."""
        # `masked_fill` and `clamp` give replaced values a zero gradient, so 1/0 never enters the graph.
        if self.padding_idx is not None:
            norms = norms.masked_fill(words.eq(self.padding_idx), 1.0)
        return norms.clamp(min=SMALLEST_SQUARED_NORM)

    def of(self, n: Tensor, own: Mapping[str, Tensor], dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """The method's scale and offset for squared norms n, in n's shape, in float32 or a float64 table's float64.

        ``own`` are the method's parameters, ``dtype`` is that of the table.
        """
        exact = torch.promote_types(dtype, torch.float32)
        terms = sharing_method(self.method).score_terms(n, own)
        scale, offset = (None if term is None else term.expand_as(n).to(exact) for term in terms)
        return scale, offset


def rows_of(parameters: Mapping[str, Any], tokens: Tensor, size: int) -> dict[str, Tensor]:
    """A method's parameters for some tokens: those with V entries (``size``) are indexed by the tokens."""
    return {
        name: parameter[tokens] if parameter.dim() and len(parameter) == size else parameter
        for name, parameter in parameters.items()
    }
