"""Describes presets by building them: shared tables, number of parameters, training recipe.

Models are built on torch's meta device, where tensors have shapes but no memory.
"""

import argparse
import difflib
import logging
import re
import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, FairseqLanguageModel
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_tiedemb.models._describe import layers_of, size
from fairseq_tiedemb.models.word2vec import Word2Vec
from fairseq_tiedemb.training.extensions import extensions_of
from fairseq_tiedemb.training.help import model_defaults

WORDS = 10_000
MOST_WORDS = 10_000_000  # fairseq's dictionary holds all words in memory
# Options that a description shows: sizes, dropout, and the use of tables.
SIZES = re.compile(
    r"_dim$|_size$|_layers$|_heads$|_depth$|dropout|^cell$|^sharing_method$|^projection|_cutoff$|_order$|^deep_output$"
)


class Preset(NamedTuple):
    """The description of a preset of this package, a value of `--arch`."""

    name: str
    about: str  # one line
    shares: str  # the shared tables, and whether there is a projection P, in words
    words: int  # of each dictionary, including fairseq's special symbols
    parameters: int  # counting a shared table once
    in_tables: int  # parameters in embedding tables
    options: dict[str, Any]  # of the model: sizes, dropout, cell, sharing method
    recipe: dict[str, Any]  # training options by name; empty without a recipe
    recipe_yields: bool  # whether passing `--optimizer` disables it


def families() -> dict[str, list[str]]:
    """Returns the names of all presets, grouped under the first docstring line of their model's module."""
    presets: dict[str, list[str]] = {}
    for name, model in ARCH_MODEL_REGISTRY.items():
        if model.__module__.startswith("fairseq_tiedemb."):
            about = (sys.modules[model.__module__].__doc__ or "").partition("\n")[0]
            presets.setdefault(about, []).append(name)
    return presets


def describe(name: str, *, words: int | None = None) -> Preset:
    """Builds a preset and describes it.

    `words` is the size of each dictionary; by default 10,000, or twice an adaptive preset's last cutoff if larger.
    ValueError if the preset is unknown, or the dictionary too small for the preset's bands, or too large.
    """
    known = [preset for names in families().values() for preset in names]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3) or ["lstm_nmt_wt"]
        needs = "a preset of this package"
        raise ValueError(f"NAME: needs {needs}; got {name}. Use {', '.join(near)}; see `fairseq-tiedemb arch`.")
    model_class = ARCH_MODEL_REGISTRY[name]
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # of products and threads, and what the description shows
    try:
        return _describe(name, model_class, words)
    finally:
        logging.disable(level)


def _describe(name: str, model_class: Any, words: int | None) -> Preset:
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", name])
    settings = model_defaults(name, vars(args)) | dict.fromkeys(model_class.turned_on, True)
    own = next(group for group in parser._action_groups if group.title == "Model-specific configuration")
    cutoffs = " ".join(str(value) for key, value in settings.items() if key.endswith("_cutoff"))
    needed = 1 + max(map(int, re.findall(r"\d+", cutoffs)), default=4)
    usual = max(WORDS, 2 * needed - 2)
    words = usual if words is None else words
    if not needed <= words <= MOST_WORDS:
        raise ValueError(f"--words: needs {needed:,} to {MOST_WORDS:,} for {name}; got {words}. Use {usual}.")
    model = _build(model_class, name, settings, words)
    layers = [layer for table in model.plan.tables for layer in layers_of(model, table)]
    return Preset(
        name=name,
        about=(model_class.__doc__ or "").strip().partition("\n")[0].replace("``", "`"),
        shares=model.plan.shared + model.plan.with_projection,
        words=words,
        parameters=size(model),
        in_tables=sum(map(size, layers)),
        options={
            key: settings[key]
            for key in (action.dest for action in own._group_actions)
            if key in model_class.turned_on or SIZES.search(key) and settings.get(key) not in (None, "")
        },
        recipe=extensions_of(model_class).recipe,
        recipe_yields=extensions_of(model_class).recipe_yields,
    )


def _build(model_class: Any, name: str, settings: dict[str, Any], words: int) -> Any:
    dictionary = Dictionary()
    for number in range(words - len(dictionary)):
        dictionary.add_symbol(f"word{number}")
    cfg: Any = argparse.Namespace(**settings)
    if config := MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name, name)):
        cfg = config.from_namespace(cfg)
        cfg._name = name
    if issubclass(model_class, Word2Vec):
        task: Any = SimpleNamespace(source_dictionary=dictionary, word_counts=np.ones(words))
    elif issubclass(model_class, FairseqLanguageModel):
        task = LanguageModelingTask(LanguageModelingConfig(), dictionary)
    else:
        task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    with torch.device("meta"):
        return model_class.build_model(cfg, task)
