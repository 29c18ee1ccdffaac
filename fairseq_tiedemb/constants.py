"""Constants that scale vectors, their gradient and logits, whatever the sharing method."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Optional

from torch import Tensor

from .option_checks import Range, check_ranges, option

SCALE = Range("a positive, finite number", "1 for none", above=0)


@dataclass
class Constants:
    """Constants of a table, and the options that set them; by default they change nothing.

        vector of token v  = embedding_scale * embed(v)
        logit of token v   = c tanh(z_v / c)    with z_v = scale(n_v) * (w_v . logit_scale f(h)) + offset(n_v) + bias_v
        c                  = logit_soft_cap, or infinity
        dL/dW              = input_gradient_scale * (its part by way of the vectors) + (its part by way of the logits)

    Source: Gemma Team 2024 (Gemma 2; soft cap, and sqrt(D) times the vectors); Raffel et al. 2020 (T5; features times
    D^-0.5 before a tied table); Cohere's and IBM's Granite models (a constant times the logits); Lopardo et al. 2026
    (arXiv:2603.26663; the gradient).
    """

    embedding_scale: float = option(
        1.0,
        "input vectors times this constant, beside the sqrt(D) that fairseq's Transformers and "
        "convolutional models multiply by unless --no-scale-embedding; Gemma: sqrt(D)",
        needs=SCALE,
    )
    logit_scale: float = option(
        1.0, "products of features and rows times this constant; T5: D^-0.5, Cohere: 0.0625", needs=SCALE
    )
    logit_soft_cap: Optional[float] = option(
        None,
        "logits z become c tanh(z / c) with this c, which none exceeds; Gemma 2: 30",
        needs=dataclasses.replace(SCALE, use="30, say, or leave it out"),
    )
    input_gradient_scale: float = option(
        1.0,
        "what tables learn as input times this constant, against what they learn as output, so that with 0 an untied "
        "input is not trained; Lopardo et al. 2026: 5",
        needs=Range("a finite number of 0 or more", "1 for none", at_least=0),
    )

    def __post_init__(self) -> None:
        """Raises ValueError, naming its flag, for a constant out of range."""
        check_ranges(Constants, self)

    @classmethod
    def of(cls, options: Any) -> "Constants":
        """The constants among a model's options, where checkpoints of older versions have none."""
        names = [each.name for each in dataclasses.fields(Constants)]
        is_dict = isinstance(options, dict)
        given = {name: options.get(name) if is_dict else getattr(options, name, None) for name in names}
        return cls(**{name: value for name, value in given.items() if value is not None})

    def changed(self) -> dict[str, float]:
        """The options that are not at their defaults, with their values."""
        values = ((each, getattr(self, each.name)) for each in dataclasses.fields(Constants))
        return {each.name: value for each, value in values if value != each.default}

    def capped(self, scores: Tensor) -> Tensor:
        """c tanh(z / c) of scores z, or z."""
        c = self.logit_soft_cap
        return scores if c is None else scores.div(c).tanh() * c


NO_CONSTANTS = Constants()
