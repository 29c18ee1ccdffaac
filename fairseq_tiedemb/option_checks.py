"""Options as fields of a dataclass, with help and range; one function checks them. Imports the standard library alone.

width: int = option(100, "embedding dimension", needs=POSITIVE)
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any


@dataclass(frozen=True)
class Range:
    """A condition on the value of an option: a finite number within bounds."""

    what: str  # the range in words, such as "a number in [0, 1)"
    use: str  # a remedy, such as "0.3, say"
    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf
    whole: bool = False  # whether the number must be whole

    def holds(self, value: Any) -> bool:
        """Whether a value is a finite number within the bounds."""
        if isinstance(value, bool) or not issubclass(type(value), Integral if self.whole else Real):
            return False
        return self.at_least <= value <= self.at_most and self.above < value < self.below


@dataclass(frozen=True)
class OneOf:
    """A condition on the value of an option: one of several."""

    choices: Sequence[Any]
    use: str

    @property
    def what(self) -> str:
        return f"one of {', '.join(map(str, self.choices))}"

    def holds(self, value: Any) -> bool:
        """Whether a value is one of the choices."""
        return value in self.choices


Needs = Range | OneOf
POSITIVE = Range("a positive whole number", "1 or more", at_least=1, whole=True)
PROBABILITY = Range("a probability in [0, 1)", "0.3, say", at_least=0, below=1)


def option(default: Any, about: str, *, needs: Needs | None = None) -> Any:
    """A field of a dataclass of options: its default, its help, and what ``check_ranges`` checks."""
    return dataclasses.field(default=default, metadata={"help": about, "needs": needs} if needs else {"help": about})


def flag_of(name: str) -> str:
    """An option as a flag: ``--embed-dim`` of ``embed_dim``."""
    return "--" + name.replace("_", "-")


def check_value(flag: str, value: Any, needs: Needs) -> None:
    """Raises ValueError, naming the flag, if the value does not meet the need.

    None, an option that is not set, always does.
    """
    if value is not None and not needs.holds(value):
        raise ValueError(f"{flag}: needs {needs.what}; got {value}. Use {needs.use}.")


def check_ranges(config: type, options: Any) -> None:
    """Checks all options of a dataclass whose fields declare ``needs``; raises ValueError as ``check_value``.

    ``options`` has the values as attributes; an option that it lacks is not set.
    """
    for each in dataclasses.fields(config):
        if "needs" in each.metadata:
            check_value(flag_of(each.name), getattr(options, each.name, None), each.metadata["needs"])
