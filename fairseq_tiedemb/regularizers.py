"""Penalties on weights, which a criterion adds to the training loss.

To add a penalty, call ``register_regularizer``: here, in your own file after ``import fairseq_tiedemb``, or in a
package with an entry point in the group ``fairseq_tiedemb.regularizers``. The criterion's flags and logs read it.
"""

import keyword
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.linalg import vector_norm

from .option_checks import flag_of
from .precision import exact
from .registry import Registry

AddedTo = Literal["update", "mean", "batch"]


@dataclass(frozen=True)
class Regularizer:
    """A weight penalty, with its flag and its help text.

    Attributes:
        name: the criterion's option, such as ``projection_regularization``.
        summary: help text of the flag.
        source: paper and section.
        penalty: model -> penalty before its strength, or None if the model has no such weights.
        options: further options of the criterion, by name, with default and help text, which ``penalty`` takes by name.
        needs: requirement and remedy for the error message when ``penalty`` gives None.
        added_to: "update": once per update to the sum of losses, before the division by the sample size; "mean": to the
            mean loss; "batch": to the sum of each batch, of whose activations it is.
    """

    name: str
    summary: str
    source: str
    penalty: Callable[..., Tensor | None]
    needs: tuple[str, str] = ("a model with the weights that it penalises", "Leave it out")
    added_to: AddedTo = "update"
    options: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.all_options:
            if not name.isidentifier() or keyword.iskeyword(name):
                needs = "names of options, of letters, digits and _"
                raise ValueError(f"regularizer: needs {needs}; got {name!r}. Use 'my_penalty', say.")
        if self.added_to not in (places := get_args(AddedTo)):
            needs = f"one of {', '.join(places)} as added_to"
            raise ValueError(f"regularizer: needs {needs}; got {self.added_to!r}. Use 'update', say.")

    @property
    def flag(self) -> str:
        """The option as spelled on the command line."""
        return flag_of(self.name)

    @property
    def all_options(self) -> dict[str, tuple[float, str]]:
        """Options of the criterion, by name, with default and help text: the strength, 0, and further ones."""
        return {self.name: (0.0, self.summary), **self.options}

    def __call__(self, model: Any, strength: float, **options: float) -> Tensor:
        """Strength times the model's penalty with these options, in float32 or more precise.

        Raises ValueError if the model has no weights to penalise.
        """
        penalty = self.penalty(model, **{name: default for name, (default, _) in self.options.items()} | options)
        if penalty is None:
            raise ValueError(f"{self.flag}: needs {self.needs[0]}; got {strength} for one without. {self.needs[1]}.")
        return strength * penalty


REGULARIZERS: Registry[Regularizer] = Registry(Regularizer, "regularizer", "fairseq_tiedemb.regularizers")


def register_regularizer(regularizer: Regularizer) -> Regularizer:
    """Adds a penalty to the registry; see ``Registry.register``, and the criterion's ``register``."""
    return REGULARIZERS.register(regularizer)


def half_squared_norm(*weights: Tensor) -> Tensor | None:
    """Sum of ||w||^2 / 2 in float32 or more precise, because squares overflow half precision; None without weights."""
    halves = [exact(weight).square().sum() / 2 for weight in weights]
    return torch.stack(halves).sum() if halves else None


def _of_projection(model: Any) -> Tensor | None:
    projection = getattr(getattr(model, "output", None), "projection", None)
    return None if projection is None else half_squared_norm(projection.weight)


def _of_rows(penalty: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """Sums a penalty, of rows w (V, D) and of 1 or 0 for words or not (V,), over a model's tables; None without one.

    The row of padding is zero: the penalty's gradient must be finite there. The model may be a ``SharedEmbedding``.
    """

    def of_model(model: Any, **options: float) -> Tensor | None:
        penalties = []
        for table in getattr(getattr(model, "output", model), "tables", dict)().values():
            w = exact(table.weight)
            is_word = torch.ones_like(w[:, 0])
            if table.padding_idx is not None:
                is_word[table.padding_idx] = 0.0
            with torch.autocast(w.device.type, enabled=False):  # sums over V overflow in float16
                penalties.append(penalty(w, is_word, **options))
        return torch.stack(penalties).sum() if penalties else None

    return of_model


def _mean_cosine(w: Tensor, is_word: Tensor) -> Tensor:
    """Sum of the cosines of all pairs of different words, over V^2, as (||sum of w/||w|| ||^2 - V) / V^2: O(V D)."""
    n = vector_norm(w, dim=1)
    factor = is_word / n.clamp(min=1e-3)  # with which a shorter row counts less than 1 in V, too
    return ((factor @ w).square().sum() - (factor * n).square().sum()) / is_word.sum().square()


def _of_activations(penalty: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Any], Tensor | None]:
    """A penalty on the last layer's outputs (T, B, H), before and after dropout, and the mask of words (T, B).

    None for a model that keeps no outputs.
    """

    def of_model(model: Any) -> Tensor | None:
        decoder: Any = getattr(model, "decoder", None)
        if not hasattr(decoder, "activations"):
            return None
        if not decoder.activations:
            decoder.activations = ()  # which asks for those of the batches to come
            return torch.zeros(())
        return penalty(*(exact(each) for each in decoder.activations))

    return of_model


def mark_words(model: Any, target_BT: Tensor, net_input: dict[str, Any]) -> None:
    """Adds to a batch's activations, if there are any, the mask of words (T, B): padding is not penalised."""
    decoder: Any = getattr(model, "decoder", None)
    if getattr(decoder, "activations", None):
        decoder.activations += (model.is_word(target_BT, net_input).t(),)


def forget_activations(model: Any) -> None:
    """Frees a batch's activations once they are penalised; a model that holds them cannot be copied (--store-ema)."""
    decoder: Any = getattr(model, "decoder", None)
    if getattr(decoder, "activations", None):
        decoder.activations = ()


def _mean_square_of_units(values_TBH: Tensor, is_word_TB: Tensor) -> Tensor:
    """The mean over units of the squares, summed over words."""
    return (values_TBH.square().mean(-1) * is_word_TB).sum()


RECURRENT_LAYERS = ("a recurrent language model", "Use --arch tied_lstm_lm or highway_lm, or a preset of theirs")
OVER_A_TABLE = ("an output layer that scores words by a table", "Use --output-layer softmax, say")
OURS = (
    Regularizer(
        name="cosine_regularization",
        summary="gamma of the penalty gamma/V^2 sum of cos(w_i, w_j) over pairs on the mean loss",
        source="Gao et al. 2019 (MLE-CosReg)",
        penalty=_of_rows(_mean_cosine),
        needs=OVER_A_TABLE,
        added_to="mean",
    ),
    Regularizer(
        name="norm_regularization",
        summary="rho of the penalty rho sum of (||w|| - nu)^2 over rows on the mean loss",
        source="norms are regularized in Herold et al. 2018; the squared distance from one norm is ours",
        penalty=_of_rows(
            lambda w, is_word, norm_target: (is_word * (vector_norm(w, dim=1) - norm_target).square()).sum()
        ),
        needs=OVER_A_TABLE,
        added_to="mean",
        options={"norm_target": (1.0, "nu of --norm-regularization")},
    ),
    Regularizer(
        name="mean_regularization",
        summary="gamma of the penalty gamma ||mean row||^2 on the mean loss, which keeps logits centred",
        source="Stollenwerk et al. 2026 (arXiv 2601.02031, mu-loss), as in their code",
        penalty=_of_rows(lambda w, is_word: (is_word @ w / is_word.sum()).square().sum()),
        needs=OVER_A_TABLE,
        added_to="mean",
    ),
    Regularizer(
        name="projection_regularization",
        summary="lambda of the penalty lambda/2 ||P||^2 on P (--projection, linear deep output); Press & Wolf: 0.15",
        source="Press & Wolf 2016, section 3; once an update on the sum, as in their code, P's bias left alone",
        penalty=_of_projection,
        needs=("a model with --projection", "Use --projection, or --deep-output linear of feedforward_lm"),
    ),
    Regularizer(
        name="l2_regularization",
        summary="mu of the penalty mu/2 ||all parameters||^2 on the mean loss: weight decay before gradient clipping",
        source="Zilly et al. 2017, their code",
        penalty=lambda model: half_squared_norm(*(each for each in model.parameters() if each.requires_grad)),
        needs=("a model with parameters to train", "Leave it out"),
        added_to="mean",
    ),
    Regularizer(
        name="activation_regularization",
        summary="alpha of the penalty alpha ||h_t||^2 / H on each token's features after dropout; Merity et al.: 2",
        source="Merity et al. 2018, section 4.6 (AR)",
        penalty=_of_activations(lambda _, dropped, is_word: _mean_square_of_units(dropped, is_word)),
        needs=RECURRENT_LAYERS,
        added_to="batch",
    ),
    Regularizer(
        name="temporal_activation_regularization",
        summary="beta of the penalty beta ||h_t - h_{t-1}||^2 / H on each token's features; Merity et al.: 1",
        source="Merity et al. 2018, section 4.6 (TAR)",
        penalty=_of_activations(lambda raw, _, is_word: _mean_square_of_units(raw.diff(dim=0), is_word[1:])),
        needs=RECURRENT_LAYERS,
        added_to="batch",
    ),
)
for _regularizer in OURS:
    register_regularizer(_regularizer)
