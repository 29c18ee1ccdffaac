"""The plan of a model's tables and its output layer, and how it is made."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from ..checkpoints.meaning import MERGED
from ..constants import Constants
from ..outputs import ADAPTIVE, SOFTMAX, OutputHead, Words
from ..sharing import sharing_method
from . import rules
from .settings import Family, Settings, Widths

WAYS = {2: "weight tying", 3: "three-way weight tying"}
# Roles of the tables, in their order.
LANGUAGE_MODEL = ("input", "output")
TRANSLATION = ("encoder input", "decoder input", "decoder output")


@dataclass(frozen=True)
class Table:
    """A table, or the tables of an adaptive layer's bands."""

    roles: tuple[str, ...]  # what the table is used for, of ``LANGUAGE_MODEL`` or ``TRANSLATION``
    rows: int  # V, or fewer for a short-list
    width: int  # of its vectors; a factorised table is narrower
    padding_idx: int | None = None  # row of ``<pad>``, or None
    bands: tuple[int, ...] = ()  # number of words up to the end of each band; empty for one table of all words

    @property
    def embeds(self) -> bool:
        """Whether the table is an input."""
        return self.roles[0].endswith("input")

    @property
    def scores(self) -> bool:
        """Whether the table is an output."""
        return self.roles[-1].endswith("output")


@dataclass(frozen=True)
class Plan:
    """Who shares what in a model."""

    tables: tuple[Table, ...]  # each once, in the order of their roles
    method: str  # name of the sharing method
    features: int  # D, width of the features
    head: str  # value of ``--output-layer``
    options: Any  # options of the head
    projection: int | None  # width of P's outputs; None without P
    projection_bias: bool  # whether P has a bias
    bias: bool  # whether the scores have a bias; adaptive layers have none
    rank: int | None  # width of factorised tables; None for others
    # Number of words up to the end of each band of an adaptive softmax; empty for other heads.
    bands: tuple[int, ...]
    constants: Constants  # scales of vectors and logits, and the logits' soft cap
    unit_rows: bool  # whether training keeps all rows at norm 1

    @property
    def output(self) -> Table | None:
        """The table of the output; None for a tree, and for bands that are not shared."""
        return self.tables[-1] if self.tables and self.tables[-1].scores else None

    @property
    def tied(self) -> bool:
        """Whether the output shares its table, or its bands, with an input."""
        return self.output is not None and self.output.embeds

    @property
    def shared(self) -> str:
        """The roles that share a table, such as "input = output (weight tying)"."""
        what = next((table for table in self.tables if len(table.roles) > 1), None)
        if what is None:
            return "nothing"
        way = f" ({WAYS[len(what.roles)]})" if what.scores else ""
        return " = ".join(what.roles) + " in bands" * bool(what.bands) + way

    @property
    def with_projection(self) -> str:
        """P and its bias as an addition, such as ", with P"; empty without P."""
        return "" if self.projection is None else ", with P" + " and its bias" * self.projection_bias


def make_plan(options: Any, family: Family, target: Words, source: Words, *, turned_on: Collection[str]) -> Plan:
    """Decides who shares what in a model; raises ValueError, naming the first option that cannot work.

    Args:
        options: settings of the model, as attributes.
        family: family of the model.
        target: dictionary of the words that the model predicts.
        source: dictionary of the words that it reads; of a language model, the same.
        turned_on: options that the preset turns on, whatever the settings say.

    Source: Press & Wolf 2016, sections 3 and 4 (tying, P); Liu et al. 2020 (methods); Lan et al. 2020, section 3.1
    (factorised tables); Grave et al. 2017, Baevski & Auli 2019, section 3 (bands).
    """
    settings = Settings(options, family, turned_on)
    method = sharing_method(str(settings("sharing_method") or "plain"), flag="--sharing-method")
    head = rules.head_of(settings)
    rules.check_projection(settings)
    if family.fairseqs:
        rules.check_fairseqs(settings, method)
    if family.translates:
        rules.check_dictionaries(settings, source, target)
    widths = family.widths(settings)
    projection = widths.projected if settings.on("projection") else None
    width = projection or widths.features
    tied = settings.shares is not None  # whether the output shares its table, or its bands, with an input
    if family.fairseqs and head.name == ADAPTIVE:
        tied = settings.on("tie_adaptive_weights")
    rules.check_widths(settings, widths, width)
    rules.check_head(settings, head, method, tied=tied)
    if tied and not family.translates:
        rules.check_predicted_words(settings, head, source, target)
    constants = Constants.of(options)
    rules.check_constants(settings, head, constants)
    chosen = head.options_of(options)
    return Plan(
        tables=tuple(_tables(settings, widths._replace(features=width), head, chosen, source, target, tied=tied)),
        method=method.name,
        features=widths.features,
        head=head.name,
        options=chosen,
        projection=projection,
        projection_bias=settings.on("projection_bias") and not settings("no_projection_bias"),
        # fairseq's models have none, but other output layers start at the words' frequencies by them.
        bias=head.name != ADAPTIVE and (family.bias or head.name != SOFTMAX and not family.heads),
        rank=settings("embedding_rank"),
        bands=rules.bands_of(settings, widths.input if tied else width, len(target)) if head.name == ADAPTIVE else (),
        constants=constants,
        unit_rows=settings.on("unit_rows"),
    )


def _tables(
    settings: Settings, widths: Widths, head: OutputHead, options: Any, source: Words, target: Words, *, tied: bool
) -> Iterator[Table]:
    """The tables, in the order of their roles; ``widths.features`` is the width that the output's table sees."""
    fairseqs = settings.family.fairseqs
    of_both = rules.merged(source, target) if settings.shares == MERGED else None
    width_of = {"encoder input": widths.encoder, "decoder input": widths.input, "input": widths.input}
    for roles in _groups(settings, head, tied=tied):
        first = roles[0]
        words = source if first in ("encoder input", "input") else target
        rows, width = len(of_both or words), width_of.get(first, widths.features)
        bands: tuple[int, ...] = ()
        if first == "input" and (settings("adaptive_input") if fairseqs else tied and head.name == ADAPTIVE):
            bands = rules.bands_of(settings, width, rows, side="input" if fairseqs else "softmax")
        padding_idx: int | None = target.pad()
        if first.endswith("output") and head.own_rows is not None:
            rows, padding_idx = head.own_rows(options, rows), None
        yield Table(roles, rows, width, padding_idx, bands)


def _groups(settings: Settings, head: OutputHead, *, tied: bool) -> list[tuple[str, ...]]:
    *inputs, output = TRANSLATION if settings.family.translates else LANGUAGE_MODEL
    groups: list[tuple[str, ...]] = [tuple(inputs)] if settings.shares_inputs else [(role,) for role in inputs]
    if settings("character_embeddings"):
        groups = []
    if tied and groups:
        groups[-1] += (output,)
    elif head.over_table and head.name != ADAPTIVE:
        groups.append((output,))
    return groups
