"""Sharing methods: how one table gives both the input vectors and the logits.

Every method uses one table W (V, D) for input tokens and for the decoder's feature h. With n_v = ||w_v||^2,

    vector of token v  = input_scale(n_v) * w_v
    logit of token v   = scale(n_v) * (w_v . f(h)) + offset(n_v)      (+ the output bias, if the model has one)

A method is three functions of the squared norms n (V,); None skips a function at no cost. A method may also have a
feature map f, a module between features and table, and parameters, which the functions take as second argument. What
scores words by other functions of the rows is an output layer (``head.py``).

To add a method, call ``register_sharing_method``: here, in your own file after ``import fairseq_tiedemb``, or in a
package with an entry point in the group ``fairseq_tiedemb.sharing_methods``. Flags and checkpoints read it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .precision import exact
from .registry import Registry

# n (V,) -> (V,); a method with parameters takes n and a mapping of its parameters.
NormFunction = Callable[..., Tensor]
NORMS = (1e-4, 0.25, 1.0, 4.0, 1e4)  # squared, at which factors are compared


@dataclass(frozen=True)
class SharingMethod:
    """A sharing method: a name, its functions of the squared norms, and its parameters.

    Attributes:
        name: value of ``--sharing-method``.
        summary: one-line description for help texts.
        source: paper and equation.
        input_scale: n (V,) -> factor of each token's input vector (V,).
        scale: n (V,) -> factor of each token's logit (V,).
        offset: n (V,) -> term added to each token's logit (V,).
        feature_map: D -> module from features (*, D) to features (*, D), applied before the table's logits.
        parameters: name -> function from V and D to the initial value, V rows for a parameter per token. With
            parameters, ``scale`` and ``offset`` are called as ``function(n, parameters)``.
        input_parameters: the same for ``input_scale``; a name in both mappings is one parameter. A table that is only
            input or only output has only that side's parameters, so every parameter is trained.
        divides_by_norm: found by the functions: whether a factor changes with the norm, so that new tables must start
            with rows of norm about 1.

    n is at least 1e-6, and 1 for the padding row; in float32, or in float64 as `squared_norms.py` says.

    Raises:
        ValueError: for a function that takes other arguments, or is not element-wise.
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
    divides_by_norm: bool = field(init=False, default=False, compare=False)

    def __post_init__(self) -> None:
        for name, make in (*self.parameters.items(), *self.input_parameters.items()):
            if not name.isidentifier() or hasattr(nn.ParameterDict, name):
                needs = "names of parameters that nn.ParameterDict does not have"
                raise ValueError(f"sharing method {self.name!r}: needs {needs}; got {name!r}. Use 'my_scale', say.")
            self._require(name, make, 2, f"a function of V and D for {name!r}", f"{name}=lambda size, width: ...")
        if self.feature_map is not None:
            self._require("feature_map", self.feature_map, 1, "feature_map(width), of a module", "its class.")
        divides = False
        for kind, side in (("input_scale", "input_parameters"), ("scale", "parameters"), ("offset", "parameters")):
            function, takes = getattr(self, kind), getattr(self, side)
            if function is None:
                continue
            needs = f"{kind}(n, own) beside {side}" if takes else f"{kind}(n), or {side} for {kind}(n, own)"
            self._require(kind, function, 2 if takes else 1, needs, f"{kind}=lambda n{', own' * bool(takes)}: ...")
            divides |= self._changes_with_norm(kind, function, takes) and kind != "offset"
        object.__setattr__(self, "divides_by_norm", divides)

    def _require(self, what: str, function: Any, count: int, needs: str, use: str) -> None:
        """Raises ValueError unless a function can be called with so many arguments."""
        got = f"={function}"
        try:
            signature = inspect.signature(function)
            got = str(signature)
            signature.bind(*range(count))
        except TypeError:
            message = f"sharing method {self.name!r}: needs {needs}; got {what}{got}. Use {use}"
            raise ValueError(message) from None
        except ValueError:  # it cannot be told, as of torch's
            return

    def _changes_with_norm(self, kind: str, function: NormFunction, makers: Mapping[str, Any]) -> bool:
        """Whether a function changes with the norm; True if it cannot be told. ValueError if it is not element-wise."""

        def values(rows: slice) -> Tensor:
            its = {name: each[rows] if each.shape[:1] == norms.shape else each for name, each in own.items()}
            return torch.as_tensor(function(norms[rows], its) if makers else function(norms[rows])).flatten().clone()

        try:
            with torch.device("cpu"), torch.random.fork_rng(devices=[]):
                norms = torch.tensor(NORMS)
                own = {name: make(len(norms), 1) for name, make in makers.items()}
                alone, together = [values(slice(row, row + 1)) for row in range(len(norms))], values(slice(None))
                comparable = together.numel() == 1 or together.shape == norms.shape
                mixes = comparable and not torch.allclose(torch.cat(alone), together, equal_nan=True)
                mixes = mixes or not torch.equal(norms, torch.tensor(NORMS))
        except Exception:  # of a user's function, which a table will show
            return True
        if mixes:
            needs, got = "element-wise functions of n, which they leave as it is", f"{kind}, which mixes or changes it"
            raise ValueError(f"sharing method {self.name!r}: needs {needs}; got {got}. Use a function of each n alone.")
        return not all(torch.equal(alone[0], each) for each in alone)

    @property
    def scales(self) -> bool:
        """Whether vectors or logits have a factor."""
        return self.input_scale is not None or self.scale is not None

    @property
    def uses_norms(self) -> bool:
        """Whether the vectors or logits have a factor or an offset, which are functions of the norms."""
        return self.scales or self.offset is not None

    @property
    def is_plain(self) -> bool:
        """Whether vectors and logits use the rows unchanged, so that fairseq's own layers can do the same."""
        return not self.uses_norms and self.feature_map is None

    def input_factor(self, squared_norms: Tensor, own: Mapping[str, Any]) -> Tensor:
        """Factor of the input vectors, for a method with ``input_scale`` and n of any shape.

        ``own`` holds the table's parameters; parameters with V rows are already indexed by the tokens.
        """
        return self._call(self.input_scale, squared_norms, own, self.input_parameters)  # type: ignore[return-value]

    def score_terms(self, squared_norms: Tensor, own: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
        """Scale and offset of the logits from n (V,) and the table's parameters ``own``; None stands for 1 and 0."""
        scale = self._call(self.scale, squared_norms, own, self.parameters)
        return scale, self._call(self.offset, squared_norms, own, self.parameters)

    def _call(
        self, function: NormFunction | None, n: Tensor, own: Mapping[str, Any], takes: Mapping[str, Any]
    ) -> Tensor | None:
        if function is None:
            return None
        values = function(n, own) if takes else function(n)
        if not isinstance(values, Tensor) or values.shape not in (n.shape, (), (1,)):
            got = tuple(values.shape) if isinstance(values, Tensor) else repr(values)
            raise ValueError(
                f"sharing method {self.name!r}: needs functions that return a tensor of n's shape or one "
                f"number; got {got} for n of shape {tuple(n.shape)}. Use element-wise operations."
            )
        return values

    def initial_parameters(self, size: int, width: int, *, embeds: bool, scores: bool) -> dict[str, nn.Parameter]:
        """New parameters, by name, for a table (V, D) that is an input (``embeds``), an output (``scores``) or both.

        Raises ValueError if an initial value is no floating-point tensor.
        """
        makers = {**(self.input_parameters if embeds else {}), **(self.parameters if scores else {})}
        initial = {}
        for name, make in makers.items():
            value = make(size, width)
            if not isinstance(value, Tensor) or not value.is_floating_point():
                needs, got = "parameters that are tensors of floating-point numbers", f"{value!r} for {name!r}"
                raise ValueError(f"sharing method {self.name!r}: needs {needs}; got {got}. Use torch.tensor(1.0), say.")
            initial[name] = nn.Parameter(value.clone())
        return initial


SHARING_METHODS: Registry[SharingMethod] = Registry(
    SharingMethod,
    "sharing method",
    "fairseq_tiedemb.sharing_methods",
    # README's example of a method of one's own had this name until version 0.1.11.
    yields=("scaled-cosine",),
)


def register_sharing_method(method: SharingMethod) -> SharingMethod:
    """Adds a method to the registry; see ``Registry.register``."""
    return SHARING_METHODS.register(method)


def sharing_method(name: str, *, flag: str = "sharing method") -> SharingMethod:
    """Looks up a sharing method; see ``Registry.find``."""
    return SHARING_METHODS.find(name, flag=flag)


class ScaleNorm(nn.Module):
    """Features of one learned length, g h / ||h||, where g starts at sqrt(D).

    Source: Nguyen & Salazar 2019.
    """

    def __init__(self, width: int):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(width**0.5))

    def forward(self, features: Tensor) -> Tensor:
        # A float16 norm would overflow.
        return (self.g * nn.functional.normalize(exact(features), dim=-1)).to(features.dtype)


class HalfSwap(nn.Module):
    """Features whose halves change places; of an odd width, the last D // 2 features come first.

    Source: Su 2023.
    """

    def __init__(self, width: int):
        super().__init__()
        self.places = width // 2

    def forward(self, features: Tensor) -> Tensor:
        return features.roll(self.places, -1)


# To add a method of this package, add its entry here.
OURS = (
    SharingMethod(name="plain", summary="one table, unchanged, for both", source="Press & Wolf 2016, section 3"),
    SharingMethod(
        name="l2-input",
        summary="rows of norm 1 for both",
        source="Liu et al. 2020, eq. 19 (each row by its own norm)",
        input_scale=torch.rsqrt,
        scale=torch.rsqrt,
    ),
    SharingMethod(
        name="square-output",
        summary="scores divided by the squared norm of the row",
        source="Liu et al. 2020, eq. 22-23",
        scale=torch.reciprocal,
    ),
    SharingMethod(
        name="distance",
        summary="scores by Euclidean distance, -||h - w||^2 / 2 without the term common to all words",
        source="Liu et al. 2020, eq. 25-26 (with the minus sign of the derivation)",
        offset=lambda squared_norms: squared_norms * -0.5,
    ),
    SharingMethod(
        name="cosine",
        summary="scores divided by the norm of the row, input vectors as they are",
        source="Liu et al. 2020, eq. 27-28",
        scale=torch.rsqrt,
    ),
    SharingMethod(
        name="scaled",
        summary="plain, with scores times a learned number",
        source="Loshchilov et al. 2024, with one scale for all words",
        scale=lambda n, own: own["scale"],
        parameters={"scale": lambda size, width: torch.ones(())},
    ),
    SharingMethod(
        name="scaled-words",
        summary="plain, with scores times a learned number of the word",
        source="Loshchilov et al. 2024 (nGPT), the scale s_z of the logits",
        scale=lambda n, own: own["scales"],
        parameters={"scales": lambda size, width: torch.ones(size)},
    ),
    SharingMethod(
        name="scaled-cosine",
        summary="cosine, with scores times a learned temperature",
        source="Liu et al. 2020, eq. 27-28, with the learned scale of Nguyen & Salazar 2019",
        scale=lambda n, own: own["temperature"] * n.rsqrt(),
        parameters={"temperature": lambda size, width: torch.ones(())},
    ),
    SharingMethod(
        name="fixnorm",
        summary="rows of norm 1 with a learned radius, and features of a learned length",
        source="Nguyen & Chiang 2018; Nguyen & Salazar 2019 (FixNorm and ScaleNorm), whose radius is fixed",
        input_scale=lambda n, own: own["radius"] * n.rsqrt(),
        input_parameters={"radius": lambda size, width: torch.ones(())},
        scale=torch.rsqrt,
        feature_map=ScaleNorm,
    ),
    SharingMethod(
        name="half-swap",
        summary="plain, with the halves of the features exchanged before they score",
        source="Su 2023",
        feature_map=HalfSwap,
    ),
)
for _method in OURS:
    register_sharing_method(_method)
