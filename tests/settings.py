"""The settings of fairseq's commands, made of a command line by hydra in a fraction of its time.

Hydra composes settings in two steps: it chooses the parts (task, model, optimiser and so on), and then sets each of
some 300 options from a line of text. This takes the parts from hydra's store, keeps lines that were parsed before, and
of settings with the same parts sets only lines that differ. tests/test_commands.py compares.
"""

import contextlib
import copy
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path

import fairseq.dataclass.utils as fairseqs
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, open_dict

CONFIG = Path(fairseqs.__file__).parent.parent / "config"


@functools.cache
def parsed(line: str) -> Override:
    return OverridesParser.create().parse_override(line)


@functools.cache
def without_choices() -> DictConfig:
    with warnings.catch_warnings(action="ignore"), initialize_config_dir(str(CONFIG), version_base="1.1"):
        return compose("config", [])


class Chosen:
    """Settings of some parts, and the lines that were set last."""

    def __init__(self, choices: tuple[str, ...]):
        self.settings = copy.deepcopy(without_choices())
        self.lines: dict[str, str] = {}
        with open_dict(self.settings):
            for choice in choices:
                group, _, name = choice.partition("=")
                self.settings[group] = ConfigStore.instance().load(f"{group}/{name}.yaml").node

    def set(self, lines: dict[str, str]) -> None:
        """Sets lines, by the names of their options."""
        new = [parsed(line) for name, line in lines.items() if self.lines.get(name) != line]
        ConfigLoaderImpl._apply_overrides_to_config(new, self.settings)
        self.lines = lines


last: dict[tuple[str, ...], Chosen] = {}


def composed(name: str, overrides: Sequence[str], strict: bool) -> DictConfig:
    """What `hydra.experimental.compose` returns; `strict` is without meaning, as there."""
    choices = tuple(line for line in overrides if "." not in line.partition("=")[0])
    lines = {line.partition("=")[0]: line for line in overrides if line not in choices}
    chosen = last.pop(choices, None)  # not to be used again if a line is refused
    if chosen is None or chosen.lines.keys() != lines.keys():
        chosen = Chosen(choices)
    chosen.set(lines)
    last[choices] = chosen
    return copy.deepcopy(chosen.settings)


def keep_what_is_parsed() -> None:
    """Makes `convert_namespace_to_omegaconf` of this process quick."""
    fairseqs.compose = composed
    fairseqs.initialize = lambda **_: contextlib.nullcontext()
