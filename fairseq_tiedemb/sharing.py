"""The ways of sharing one table between words going in and scores coming out.

Every method is linear in the decoder's feature h and uses the same table W (V, D); with n_v = ||w_v||^2,

    vector of word v  = input_scale(n_v) * w_v
    score of word v   = scale(n_v) * (w_v . h) + offset(n_v)      (+ the output bias, where a model has one)

so a method is three functions of the squared norms n (V,). ``None`` stands for "leaves it as it is" and costs nothing.
To add a method, add one ``register_sharing_method`` call at the end of this file: flags, help texts and the contract
tests read the registry.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NormFunction = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class SharingMethod:
    """One row of the table of sharing methods.

    Attributes:
        name: value of ``--sharing-method``.
        summary: what the method does, one line, for help texts.
        source: paper and equation.
        input_scale: n (V,) -> factor of each word's input vector (V,).
        scale: n (V,) -> factor of each word's score (V,).
        offset: n (V,) -> term added to each word's score (V,).
    """

    name: str
    summary: str
    source: str
    input_scale: NormFunction | None = None
    scale: NormFunction | None = None
    offset: NormFunction | None = None

    @property
    def divides_by_norm(self) -> bool:
        """Whether scores or vectors are divided by a norm, so that tables must start with rows of norm about 1."""
        return self.input_scale is not None or self.scale is not None

    @property
    def uses_norms(self) -> bool:
        """Whether anything depends on the norms at all."""
        return self.divides_by_norm or self.offset is not None


SHARING_METHODS: dict[str, SharingMethod] = {}


def register_sharing_method(method: SharingMethod) -> SharingMethod:
    """Adds a method to the registry.

    Raises:
        ValueError: if the name is taken.
    """
    if method.name in SHARING_METHODS:
        raise ValueError(
            f"sharing method: needs a name that is free; got {method.name!r}, which is "
            f"{SHARING_METHODS[method.name].summary!r}. Use another name."
        )
    SHARING_METHODS[method.name] = method
    return method


def sharing_method(name: str) -> SharingMethod:
    """Looks a method up.

    Raises:
        ValueError: if no method has this name; the error lists those that exist.
    """
    if name not in SHARING_METHODS:
        known = ", ".join(SHARING_METHODS)
        raise ValueError(f"--sharing-method: needs a registered method; got {name!r}. Use one of: {known}.")
    return SHARING_METHODS[name]


register_sharing_method(
    SharingMethod(
        name="plain",
        summary="one table as it is, for both",
        source="Press & Wolf 2016, section 3",
    )
)
register_sharing_method(
    SharingMethod(
        name="l2-input",
        summary="rows of norm 1 for both",
        source="Liu et al. 2020, eq. 19 (each row by its own norm)",
        input_scale=torch.rsqrt,
        scale=torch.rsqrt,
    )
)
register_sharing_method(
    SharingMethod(
        name="square-output",
        summary="scores divided by the squared norm of the row",
        source="Liu et al. 2020, eq. 22-23",
        scale=torch.reciprocal,
    )
)
register_sharing_method(
    SharingMethod(
        name="distance",
        summary="scores by Euclidean distance, -||h - w||^2 / 2 without the term common to all words",
        source="Liu et al. 2020, eq. 25-26 (with the minus sign of the derivation)",
        offset=lambda squared_norms: squared_norms * -0.5,
    )
)
register_sharing_method(
    SharingMethod(
        name="cosine",
        summary="scores divided by the norm of the row, input vectors as they are",
        source="Liu et al. 2020, eq. 27-28",
        scale=torch.rsqrt,
    )
)
