"""Penalties on weights, which a criterion adds to the training loss.

To add a penalty, call ``register_regularizer`` at the end of this file: the criterion builds its flags, checks and log
lines from the registry when it is imported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .option_checks import flag_of


@dataclass(frozen=True)
class Regularizer:
    """A weight penalty, with its flag and its help text.

    Attributes:
        name: the criterion's option, such as ``projection_regularization``.
        summary: help text of the flag.
        source: paper and section.
        penalty: model -> penalty before its strength, or None if the model has no such weights.
        needs: requirement and remedy for the error message when ``penalty`` gives None.
        of_the_mean: whether it is added to the mean loss, or else once per update to the sum before the division.
    """

    name: str
    summary: str
    source: str
    penalty: Callable[[Any], Tensor | None]
    needs: tuple[str, str] = ("", "")
    of_the_mean: bool = False

    @property
    def flag(self) -> str:
        """The option as spelled on the command line."""
        return flag_of(self.name)

    def __call__(self, model: Any, strength: float) -> Tensor:
        """Strength times the model's penalty, in float32 or more precise.

        Raises:
            ValueError: if the model has no weights to penalise.
        """
        penalty = self.penalty(model)
        if penalty is None:
            raise ValueError(f"{self.flag}: needs {self.needs[0]}; got {strength} for one without. {self.needs[1]}.")
        return strength * penalty


REGULARIZERS: dict[str, Regularizer] = {}


def register_regularizer(regularizer: Regularizer) -> Regularizer:
    """Adds a penalty to the registry.

    Raises:
        ValueError: if the name is taken.
    """
    if regularizer.name in REGULARIZERS:
        raise ValueError(
            f"regularizer: needs an unused name; got {regularizer.name!r}, which is "
            f"{REGULARIZERS[regularizer.name].summary!r}. Use another name."
        )
    REGULARIZERS[regularizer.name] = regularizer
    return regularizer


def half_squared_norm(weight: Tensor) -> Tensor:
    """||w||^2 / 2 in float32 or more precise, because squares overflow half precision."""
    return weight.to(torch.promote_types(weight.dtype, torch.float32)).square().sum() / 2


register_regularizer(
    Regularizer(
        name="projection_regularization",
        summary="lambda of the penalty lambda/2 ||P||^2 on P (--projection, linear deep output); Press & Wolf: 0.15",
        source="Press & Wolf 2016, section 3; once an update on the sum, as in their code, P's bias left alone",
        penalty=lambda model: model.output.penalty(),
        needs=("a model with --projection", "Use --projection, or --deep-output linear of feedforward_lm"),
    )
)
register_regularizer(
    Regularizer(
        name="l2_regularization",
        summary="mu of the penalty mu/2 ||all parameters||^2 on the mean loss: weight decay before gradient clipping",
        source="Zilly et al. 2017, their code",
        penalty=lambda model: torch.stack(
            [half_squared_norm(parameter) for parameter in model.parameters() if parameter.requires_grad]
        ).sum(),
        of_the_mean=True,
    )
)
