"""The settings of fairseq's commands, made of a command line by hydra in a tenth of its time.

Hydra composes settings in two steps: it chooses the parts (task, model, optimiser and so on), and then sets each of
some 300 options from a line of text. This keeps what does not depend on the command: parts that were chosen before, and
lines that were parsed before. Commands in processes of their own go the whole way; tests/test_commands.py compares.
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
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig

CONFIG = Path(fairseqs.__file__).parent.parent / "config"


@functools.cache
def parsed(line: str) -> Override:
    return OverridesParser.create().parse_override(line)


@functools.cache
def chosen(name: str, choices: tuple[str, ...]) -> DictConfig:
    with warnings.catch_warnings(action="ignore"), initialize_config_dir(str(CONFIG), version_base="1.1"):
        return compose(name, list(choices))


def composed(name: str, overrides: Sequence[str], strict: bool) -> DictConfig:
    """What `hydra.experimental.compose` returns; `strict` is without meaning, as there."""
    choices = tuple(line for line in overrides if "." not in line.split("=")[0])
    settings = copy.deepcopy(chosen(name, choices))
    ConfigLoaderImpl._apply_overrides_to_config([parsed(line) for line in overrides if line not in choices], settings)
    return settings


def keep_what_is_parsed() -> None:
    """Makes `convert_namespace_to_omegaconf` of this process quick."""
    fairseqs.compose = composed
    fairseqs.initialize = lambda **_: contextlib.nullcontext()
