"""The ways of sharing one table between words going in and scores coming out.

Every method uses the same table W (V, D) for words and for the decoder's feature h; with n_v = ||w_v||^2,

    vector of word v  = input_scale(n_v) * w_v
    score of word v   = scale(n_v) * (w_v . f(h)) + offset(n_v)      (+ the output bias, where a model has one)

so a method is three functions of the squared norms n (V,). ``None`` stands for "leaves it as it is" and costs nothing.
Beyond that a method may have a feature map f, a module of its own between features and table, and parameters of its
own, which its functions get as a second argument.

To add a method, add one ``register_sharing_method`` call: at the end of this file; in a file of your own after
``import fairseq_tiedemb``; or in a package whose entry points name it in the group ``fairseq_tiedemb.sharing_methods``.
Flags, settings, checkpoints and the contract tests read the registry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .registry import Registry

# n (V,) -> (V,); of a method with parameters: n and the parameters by name.
NormFunction = Callable[..., Tensor]


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
        feature_map: D -> module from features (*, D) to features (*, D), which the table's scores then take.
        parameters: initial value of each parameter of the method by name, from V and D. With them ``scale`` and
            ``offset`` are called as ``function(n, parameters)``; one with a row a word has V rows.
        input_parameters: the same for ``input_scale``. A table that is input or output alone has only those of its
            part, so that each of a model's parameters is trained; one that is in both, by one name, is one parameter.

    n comes in float32 or, where a square overflows that, in float64; at least 1e-6, and 1 for the padding row.
    """

    name: str
    summary: str
    source: str
    input_scale: NormFunction | None = None
    scale: NormFunction | None = None
    offset: NormFunction | None = None
    feature_map: Callable[[int], nn.Module] | None = None
    parameters: Mapping[str, Callable[[int, int], Tensor]] = field(default_factory=dict)
    input_parameters: Mapping[str, Callable[[int, int], Tensor]] = field(default_factory=dict)

    @property
    def divides_by_norm(self) -> bool:
        """Whether scores or vectors are divided by a norm, so that tables must start with rows of norm about 1."""
        return self.input_scale is not None or self.scale is not None

    @property
    def uses_norms(self) -> bool:
        """Whether anything depends on the norms at all."""
        return self.divides_by_norm or self.offset is not None

    @property
    def is_plain(self) -> bool:
        """Whether vectors and scores are those of the rows as they are, so that a layer of fairseq's own may do it."""
        return not self.uses_norms and self.feature_map is None

    def input_factor(self, squared_norms: Tensor, own: Mapping[str, Any]) -> Tensor:
        """What input vectors are multiplied by, of a method with an ``input_scale``.

        Args:
            squared_norms: n of the words, of any shape.
            own: the parameters that the table has, of those with a row a word the rows of these words.
        """
        return self._call(self.input_scale, squared_norms, own, self.input_parameters)  # type: ignore[return-value]

    def score_terms(self, squared_norms: Tensor, own: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
        """Scale and offset of the words' scores, None for 1 and 0.

        Args:
            squared_norms: n (V,).
            own: the parameters that the table has.
        """
        scale = self._call(self.scale, squared_norms, own, self.parameters)
        return scale, self._call(self.offset, squared_norms, own, self.parameters)

    def _call(
        self, function: NormFunction | None, n: Tensor, own: Mapping[str, Any], takes: Mapping[str, Any]
    ) -> Tensor | None:
        if function is None:
            return None
        found = function(n, own) if takes else function(n)
        if not isinstance(found, Tensor) or found.shape not in (n.shape, (), (1,)):
            got = tuple(found.shape) if isinstance(found, Tensor) else repr(found)
            raise ValueError(
                f"sharing method {self.name!r}: needs functions that return a tensor with a number for each of n, or "
                f"one for all; got {got} for n of shape {tuple(n.shape)}. Use element-wise operations."
            )
        return found

    def initial_parameters(self, size: int, width: int, *, embeds: bool, scores: bool) -> dict[str, nn.Parameter]:
        """The parameters that a table has of the method, at their start, by name.

        Args:
            size: V.
            width: D.
            embeds: whether the table is an input.
            scores: whether it is an output.

        Raises:
            ValueError: if one is no tensor of floating-point numbers.
        """
        makers = {**(self.input_parameters if embeds else {}), **(self.parameters if scores else {})}
        initial = {}
        for name, make in makers.items():
            value = make(size, width)
            if not isinstance(value, Tensor) or not value.is_floating_point():
                raise ValueError(
                    f"sharing method {self.name!r}: needs parameters that are tensors of floating-point numbers; got "
                    f"{value!r} for {name!r}. Use torch.tensor(1.0), say."
                )
            initial[name] = nn.Parameter(value)
        return initial


SHARING_METHODS: Registry[SharingMethod] = Registry(SharingMethod, "sharing method", "fairseq_tiedemb.sharing_methods")


def register_sharing_method(method: SharingMethod) -> SharingMethod:
    """Adds a method to the registry; see ``Registry.register``."""
    return SHARING_METHODS.register(method)


def sharing_method(name: str, *, flag: str = "sharing method") -> SharingMethod:
    """Looks a method up; see ``Registry.find``."""
    return SHARING_METHODS.find(name, flag=flag)


def sharing_method_names() -> list[str]:
    """The names of all methods, those of installed packages with them."""
    return SHARING_METHODS.names()


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
