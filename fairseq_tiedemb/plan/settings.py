"""What the plan reads: a family and its settings."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..checkpoints.meaning import MERGED, THREE_WAY, TYING
from ..option_checks import flag_of


class Widths(NamedTuple):
    """Widths of a model's parts."""

    input: int  # of the input vectors; the decoder's in a model with an encoder
    features: int  # D, of the features
    projected: int  # of P's outputs, if the model has P
    encoder: int = 0  # of the encoder's input vectors


class Settings:
    """A model's options, and the options that its preset turns on; unset, 0, False and "" are off."""

    def __init__(self, options: Any, family: "Family", turned_on: Collection[str] = ()):
        self.options, self.family, self.turned_on = options, family, turned_on

    def __call__(self, name: str) -> Any:
        """An option; None if it is off, or the family does not have it."""
        return getattr(self.options, name, None) or None

    def on(self, name: str) -> bool:
        """Whether an option is on: by its own value, by the preset, or since another option implies it."""
        return bool(self(name)) or name in self.turned_on or name in self.family.implies(self)

    @property
    def arch(self) -> str:
        """The preset as a flag."""
        return f"--arch {self('_name') or self('arch')}"

    def asked_by(self, name: str) -> str:
        """Who turns an option on: the preset, or else the flag."""
        return self.arch if name in self.turned_on else flag_of(name)

    @property
    def shares(self) -> str | None:
        """The option that shares the output's table with an input; None without."""
        return next((name for name in (THREE_WAY, MERGED, TYING) if self.on(name)), None)

    @property
    def shares_inputs(self) -> bool:
        """Whether encoder and decoder read one table."""
        return self.family.translates and self.shares in (THREE_WAY, MERGED)

    @property
    def equal_widths(self) -> tuple[str, ...]:
        """Options of widths that must be equal."""
        if self.shares is None or self.on("projection"):
            return ()
        return (*self.family.equal_widths, *(["encoder_embed_dim"] if self.shares_inputs else []))


@dataclass(frozen=True)
class Family:
    """Where a family's settings are, and what its models can have."""

    widths: Callable[[Settings], Widths]  # widths of the parts, from the settings
    # Need and remedy for the message about tied tables whose widths differ; {} stands for the input's width.
    unequal: tuple[str, str] = ("input vectors as wide as features", "--decoder-output-dim {}, or --projection")
    translates: bool = False  # whether the model has an encoder and two dictionaries
    bias: bool = True  # whether output tables have a bias
    fairseqs: bool = False  # whether fairseq builds the model, with its own options of adaptive layers
    # Options that tying needs to be equal, unless there is P; on the command line, those that are left out follow
    # the one that is given. Three-way tying adds ``encoder_embed_dim``.
    equal_widths: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()  # values of ``--output-layer``; empty for all that give words probabilities
    implies: Callable[[Settings], Collection[str]] = lambda settings: ()  # options that other options turn on
