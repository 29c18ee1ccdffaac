"""Presets take their numbers from the files in config/."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import fairseq.models
import pytest
from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from hydra.core.config_store import ConfigStore

from fairseq_tiedemb.models import _recipe
from fairseq_tiedemb.models.tied_lstm_lm import TiedLSTMLM, TiedLSTMLMConfig

COMMON = """# @package _global_
model:
  decoder_embed_dim: 7
  dropout: 0.25
task:
  _name: contiguous_lm
  data: ???
  tokens_per_sample: 5
criterion:
  _name: tied_cross_entropy
optimizer:
  _name: sgd
  lr: ${optimization.lr}
  momentum: 5.0e-1
optimization:
  lr: [0.125]
  clip_norm: 2.0
  stop_time_hours: null
dataset:
  batch_size_valid: ${dataset.batch_size}
checkpoint:
  save_interval_updates: 3
"""
OWN = """
model:
  _name: a_preset
  dropout: 0.75
optimization:
  clip_norm: 4.0
"""
FIRST, LAST = "defaults: [_self_, recipe: a_recipe]", "defaults: [recipe: a_recipe, _self_]"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "a_recipe.yaml").write_text(COMMON)
    monkeypatch.setattr(_recipe, "CONFIG", tmp_path)
    yield tmp_path
    for name, registry in vars(fairseq.models).items():
        if name.endswith("_REGISTRY"):
            registry.pop("a_preset", None)
    ConfigStore.instance().repo["model"].pop("a_preset.yaml", None)


def test_a_preset_is_what_its_file_says(config: Path) -> None:
    (config / "a_preset.yaml").write_text(LAST + OWN)
    _recipe.register_preset(TiedLSTMLM, TiedLSTMLMConfig, "a_preset", "A preset.", ties=True)
    model = ARCH_MODEL_REGISTRY["a_preset"]
    assert (model.__doc__, model.__module__, model.ties) == ("A preset.", TiedLSTMLM.__module__, True)
    assert model.recipe == {
        "task": "contiguous_lm",
        "tokens_per_sample": 5,
        "criterion": "tied_cross_entropy",
        "optimizer": "sgd",
        "momentum": 0.5,
        "lr": [0.125],
        "clip_norm": 4.0,
        "save_interval_updates": 3,
    }
    defaults = MODEL_DATACLASS_REGISTRY["a_preset"]()
    assert (defaults.decoder_embed_dim, defaults.dropout, defaults.decoder_hidden_size) == (7, 0.75, 200)
    flags = ["--arch", "a_preset", "--max-epoch", "9", "--clip-norm", "8"]
    args = options.parse_args_and_arch(options.get_training_parser(), ["data-bin", *flags])
    assert (args.task, args.save_interval_updates) == ("contiguous_lm", 3)
    assert (args.clip_norm, args.max_epoch, args.lr, args.momentum) == (8.0, 9, [0.125], 0.5)


@pytest.mark.parametrize(("order", "dropout", "clip_norm"), [(FIRST, 0.25, 2.0), (LAST, 0.75, 4.0)])
def test_the_last_of_the_defaults_prevails(order: str, dropout: float, clip_norm: float, config: Path) -> None:
    (config / "a_preset.yaml").write_text(order + OWN)
    assert _recipe.with_sizes(TiedLSTMLMConfig, "a_preset")().dropout == dropout
    assert _recipe.training_options("a_preset")["clip_norm"] == clip_norm


@pytest.mark.parametrize("preset", ["zaremba_lm_small_wt_pr", "gal_lm_large", "highway_lm_8x890_wt", "dl4mt_twwt"])
def test_a_presets_class_can_be_pickled(preset: str) -> None:
    """And so can its models, which go to other processes as a whole."""
    assert pickle.loads(pickle.dumps(ARCH_MODEL_REGISTRY[preset])) is ARCH_MODEL_REGISTRY[preset]
