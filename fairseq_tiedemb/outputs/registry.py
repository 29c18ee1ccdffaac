"""The output heads by the value of ``--output-layer``: this package's, and those of users."""

import dataclasses
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ..embedding import SharedEmbedding
from ..head import Head
from ..registry import Registry


class Words(Protocol):
    """The part of fairseq's ``Dictionary`` that plans and heads read."""

    symbols: list[str]
    indices: dict[str, int]

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> str: ...
    def bos(self) -> int: ...
    def pad(self) -> int: ...
    def unk(self) -> int: ...


@dataclass
class NoOptions:
    """The options of a head that has none."""


@dataclass(frozen=True)
class OutputHead:
    """A value of ``--output-layer``.

    Attributes:
        name: the value.
        summary: what the head does, one line, for help texts.
        build: the head, from its options, the table, the counts of the training text (V,) or None, and the dictionary;
            None for bands, which are made with the input's.
        options: dataclass of its options, with defaults, of ``KINDS``; ``--output-layer-options NAME=VALUE,...`` sets
            them.
        check: raises ValueError for options that cannot work.
        own_rows: number of rows of a table that is not shared, from the options and V; None for a row a word.
        over_table: whether the head scores words by the table; without, it takes its width alone.
        has_probabilities: whether the head gives words probabilities, without which there is no language model.
        extends: whether only rows of the table are made from words, so that ``fairseq-tiedemb extend`` can add some.
        has_flags: whether its options are flags of their own, as those of this package are.
    """

    name: str
    summary: str
    build: Callable[[Any, SharedEmbedding, Tensor | None, Words], Head] | None
    options: type = NoOptions
    check: Callable[[Any], None] = lambda options: None
    own_rows: Callable[[Any, int], int] | None = None
    over_table: bool = True
    has_probabilities: bool = True
    extends: bool = False
    has_flags: bool = False

    def options_of(self, settings: Any) -> Any:
        """The options that a model's settings have, as flags or in ``--output-layer-options``.

        Raises ValueError as ``parse``, and for options that cannot work.
        """
        if self.has_flags:
            names = [field.name for field in dataclasses.fields(self.options)]
            options = self.options(**{name: getattr(settings, name) for name in names if hasattr(settings, name)})
        else:
            options = self.parse(getattr(settings, "output_layer_options", None))
        self.check(options)
        return options

    def built(self, *arguments: Any) -> Head:
        """What ``build`` makes of the ``arguments``; without a ``flag`` of its own, a head is called by the name.

        Raises ValueError for what is no head.
        """
        assert self.build is not None
        head: Any = self.build(*arguments)
        if not isinstance(head, Head) or getattr(head.scores, "__func__", None) is Head.scores:
            needs, got = "a build that returns a Head with a method scores", type(head).__name__
            raise ValueError(f"--output-layer {self.name}: needs {needs}; got {got}. Return one.")
        if type(head).flag == head.flag == Head.flag:
            head.flag = f"{Head.flag} {self.name}"
        return head

    def parse(self, text: str | None) -> Any:
        """The options in ``NAME=VALUE,...``; raises ValueError for unknown and repeated names, and other values."""
        types = typing.get_type_hints(self.options)
        values: dict[str, Any] = {}
        for item in filter(None, (text or "").split(",")):
            name, _, value = item.strip().partition("=")
            if name not in types or name in values:
                needs, got, use = f"options of {self.name}, each once", repr(name), f"Use {', '.join(types)}"
                if not types:
                    needs, got = "an output layer with options", f"{name!r} with {self.name}, which has none"
                    use = "Leave it out"
                raise ValueError(f"--output-layer-options: needs {needs}; got {got}. {use}.")
            kind = types[name]
            try:
                values[name] = TRUTH[value.lower()] if kind is bool else kind(value)
            except (KeyError, ValueError):
                needs, got = f"{name}={kind.__name__.upper()}", f"{name}={value}"
                raise ValueError(f"--output-layer-options: needs {needs}; got {got}. Use another value.") from None
        return self.options(**values)


KINDS = (int, float, bool, str)
TRUTH = {"true": True, "false": False}


OUTPUT_HEADS: Registry[OutputHead] = Registry(OutputHead, "output layer", "fairseq_tiedemb.output_layers")


def register_output_layer(head: OutputHead) -> OutputHead:
    """Adds a value of ``--output-layer``; ValueError as of ``Registry.register``, and for options not of ``KINDS``."""
    if isinstance(head, OutputHead) and not head.has_flags:
        if not dataclasses.is_dataclass(head.options):
            raise ValueError(f"output layer: needs options that are a dataclass; got {head.options!r}. Use @dataclass.")
        for name, kind in typing.get_type_hints(head.options).items():
            if kind not in KINDS:
                needs = "options of type int, float, bool or str"
                raise ValueError(f"output layer: needs {needs}; got {name}: {kind}. Use one of them.")
        for field in dataclasses.fields(head.options):
            if field.default is field.default_factory is dataclasses.MISSING:
                raise ValueError(f"output layer: needs options with defaults; got {field.name} without. Give it one.")
    return OUTPUT_HEADS.register(head)
