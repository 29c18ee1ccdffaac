"""Presets with a recipe: one, the same from the command line and from fairseq-hydra-train."""

import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim.lr_scheduler.fixed_schedule import FixedLRSchedule
from fairseq.optim.lr_scheduler.polynomial_decay_schedule import PolynomialDecayLRSchedule
from fairseq.optim.sgd import SGD
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from fairseq_tiedemb.models import _recipe, feedforward_lm, highway_lm, tied_lstm_lm

from .conftest import USER_DIR

CONFIG = USER_DIR / "config"
SMALL = ("zaremba_lm_small", "zaremba_lm_small_wt", "zaremba_lm_small_pr", "zaremba_lm_small_wt_pr")
ZAREMBA = (*SMALL, "zaremba_lm_medium", "zaremba_lm_medium_wt", "zaremba_lm_large", "zaremba_lm_large_wt")
GAL = ("gal_lm_small", "gal_lm_small_wt", "gal_lm_large", "gal_lm_large_wt")
HIGHWAY = tuple(f"highway_lm_{size}{tied}" for size in ("8x890", "9x860", "10x830") for tied in ("", "_wt"))
FEEDFORWARD = ("feedforward_lm", "feedforward_lm_wt", "bengio_lm")
PRESETS = (*ZAREMBA, *GAL, *HIGHWAY, *FEEDFORWARD)
# One of each file in config/recipe; among them one that its preset's own file changes.
RECIPES = ("zaremba_lm_small_pr", "zaremba_lm_medium", "zaremba_lm_large_wt", "gal_lm_large", "highway_lm_9x860_wt")
RECIPES += ("gal_lm_small_wt", *FEEDFORWARD[1:], "lstm_nmt_small_wt", "lstm_nmt_twwt", "dl4mt_wt")


@pytest.fixture(autouse=True)
def no_hydra_left() -> Iterator[None]:
    yield
    GlobalHydra.instance().clear()


@functools.cache
def by_command_line(preset: str, *flags: str) -> dict[str, Any]:
    arguments = ["data-bin", "--arch", preset, *flags]
    parsed = options.parse_args_and_arch(options.get_training_parser(), arguments)
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(parsed), resolve=True)
    if not isinstance(cfg["optimizer"], dict):  # fairseq's SGD has no config: it gets all there is
        cfg["optimizer"] = vars(cfg["optimizer"])
    return cfg


def by_hydra(preset: str) -> dict[str, Any]:
    hydra_init(preset)
    with initialize_config_dir(str(CONFIG), version_base="1.1"):
        cfg = compose(preset, ["task.data=data-bin"])
    add_defaults(cfg)
    return OmegaConf.to_container(cfg, resolve=True)


def test_files_are_read_as_hydra_reads_them() -> None:
    """It takes 1e-6 for a number, which is a word for YAML."""
    files = list(CONFIG.rglob("*.yaml"))
    assert len(files) > 30
    for path in files:
        assert _recipe._read(path) == OmegaConf.to_container(OmegaConf.load(path)), path


def test_every_preset_is_tested_and_has_its_recipe() -> None:
    assert {path.stem for path in CONFIG.glob("*_lm*.yaml")} == set(PRESETS)
    modules = (tied_lstm_lm.__name__, highway_lm.__name__, feedforward_lm.__name__)
    ours = {name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__ in modules}
    assert ours - {"tied_lstm_lm", "highway_lm"} == set(PRESETS)


@pytest.mark.parametrize("preset", RECIPES)
def test_the_command_line_reads_a_file_as_hydra_does(preset: str) -> None:
    hydra, command_line = by_hydra(preset), by_command_line(preset)
    for section in ("model", "task", "criterion", "lr_scheduler", "optimization", "dataset", "checkpoint"):
        assert hydra[section] == command_line[section], section
    assert hydra["optimizer"] == {name: command_line["optimizer"][name] for name in hydra["optimizer"]}


# tokens of a row in a batch, clipping, epochs at rate 1, divisor, epochs, dropout
SETTINGS = {
    "small": (20, 5.0, 5, 2.0, 13, 0.0),
    "medium": (35, 5.0, 7, 1.2, 39, 0.5),
    "large": (35, 10.0, 15, 1.15, 55, 0.65),
}


@pytest.mark.parametrize("preset", ZAREMBA)
def test_recipes_are_zarembas(preset: str) -> None:
    unroll, clip_norm, _, _, epochs, dropout = SETTINGS[preset.split("_")[2]]
    cfg = by_command_line(preset)
    assert (cfg["task"]["_name"], cfg["task"]["tokens_per_sample"]) == ("contiguous_lm", unroll)
    assert (cfg["task"]["sample_break_mode"], cfg["dataset"]["batch_size"]) == ("none", 20)
    assert {cfg["optimizer"][name] for name in ("momentum", "weight_decay")} == {0.0}
    assert (cfg["optimizer"]["_name"], cfg["optimization"]["lr"]) == ("sgd", [1.0])
    assert (cfg["optimization"]["clip_norm"], cfg["optimization"]["max_epoch"]) == (clip_norm, epochs)
    assert cfg["optimization"]["sentence_avg"] is True
    assert cfg["criterion"]["_name"] == "tied_cross_entropy"
    assert cfg["criterion"]["projection_regularization"] == (0.15 if preset.endswith("_pr") else 0.0)
    assert cfg["criterion"]["sentence_avg"] is True
    assert cfg["model"]["dropout"] == dropout


@pytest.mark.parametrize(("preset", "decay"), [("gal_lm_large", 1e-7), ("gal_lm_large_wt", 0.0)])
def test_recipes_are_gals(preset: str, decay: float) -> None:
    cfg = by_command_line(preset)
    assert (cfg["optimizer"]["_name"], cfg["optimizer"]["weight_decay"]) == ("sgdw", decay)
    assert (cfg["optimization"]["clip_norm"], cfg["optimization"]["max_epoch"]) == (10.0, 55)
    masks = [cfg["model"][f"dropout_{place}"] for place in ("words", "inputs", "states", "outputs")]
    assert (masks, cfg["model"]["dropout"]) == ([0.3, 0.5, 0.3, 0.5], 0.0)


@pytest.mark.parametrize("preset", ["gal_lm_small", "gal_lm_small_wt"])
def test_the_small_model_with_variational_dropout_is_between_zarembas_and_gals(preset: str) -> None:
    cfg, zaremba, gal = map(by_command_line, (preset, preset.replace("gal", "zaremba"), "gal_lm_large_wt"))
    for section, name in (("optimization", "clip_norm"), ("model", "init_range"), ("model", "decoder_hidden_size")):
        assert cfg[section][name] == zaremba[section][name], name
    assert cfg["task"]["tokens_per_sample"] == gal["task"]["tokens_per_sample"] == 35
    assert (cfg["optimizer"]["_name"], cfg["optimizer"]["weight_decay"]) == ("sgd", 0.0)
    masks = [cfg["model"][f"dropout_{place}"] for place in ("words", "inputs", "states", "outputs")]
    assert (masks, cfg["model"]["dropout"]) == ([0.1, 0.2, 0.1, 0.2], 0.0)


@pytest.mark.parametrize("preset", FEEDFORWARD)
def test_recipes_are_of_the_feedforward_network(preset: str) -> None:
    cfg = by_command_line(preset)
    assert (cfg["task"]["tokens_per_sample"], cfg["dataset"]["batch_size"]) == (5, 200)
    assert (cfg["optimizer"]["_name"], cfg["optimizer"]["adam_betas"]) == ("fused_adam", "(0.9, 0.999)")
    assert (cfg["optimization"]["lr"], cfg["optimizer"]["weight_decay"]) == ([0.002], 0.0)
    assert (cfg["optimization"]["clip_norm"], cfg["optimization"]["sentence_avg"]) == (0.0, False)
    assert [cfg["model"][name] for name in ("ngram_order", "decoder_embed_dim", "decoder_hidden_size")] == [5, 100, 200]
    assert (cfg["model"]["activation_fn"], cfg["model"]["dropout"], cfg["model"]["init_range"]) == ("tanh", 0.0, 0.1)
    assert cfg["model"]["deep_output"] == ("none" if preset == "bengio_lm" else "linear")


def test_the_learning_rate_falls_to_0_at_the_last_update() -> None:
    """However many updates the user wants."""
    for flags, last in (((), 2790), (("--max-update", "100"), 100)):
        cfg = by_command_line("feedforward_lm_wt", *flags)
        optimizer = SGD(SimpleNamespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.zeros(1))])
        schedule = PolynomialDecayLRSchedule(OmegaConf.create(cfg["lr_scheduler"]), optimizer)
        schedule.step_begin_epoch(1)
        found = [schedule.step_update(step) for step in (0, last // 2, last - 1, last)]
        assert found == pytest.approx([0.002, 0.001, 0.002 / last, 0.0])


@pytest.mark.parametrize("preset", HIGHWAY)
def test_recipes_are_of_the_highway_network(preset: str) -> None:
    cfg = by_command_line(preset)
    assert cfg["criterion"]["l2_regularization"] == 1e-7
    assert (cfg["optimizer"]["_name"], cfg["optimizer"]["weight_decay"]) == ("sgd", 0.0)
    assert (cfg["optimization"]["clip_norm"], cfg["optimization"]["max_epoch"]) == (10.0, 500)
    masks = [cfg["model"][f"dropout_{place}"] for place in ("words", "inputs", "states", "outputs")]
    assert (masks, cfg["model"]["transform_bias"]) == ([0.25, 0.75, 0.25, 0.75], -2.0)
    depth, size = map(int, preset.split("_")[2].split("x"))
    sizes = [cfg["model"][f"decoder_{name}"] for name in ("depth", "embed_dim", "hidden_size")]
    assert sizes == [depth, size, size]


# first rate, epochs at it, divisor, epochs
SCHEDULES = {f"zaremba_lm_{size}": (1.0, *settings[2:5]) for size, settings in SETTINGS.items()}
SCHEDULES |= {"gal_lm_large": (1.0, 11, 1.15, 55), "gal_lm_small": (1.0, 11, 1.15, 40)}
SCHEDULES |= {"highway_lm_9x860": (0.2, 20, 1.02, 500)}


@pytest.mark.parametrize("preset", SCHEDULES)
def test_learning_rates_are_the_papers(preset: str) -> None:
    rate, whole, divisor, epochs = SCHEDULES[preset]
    cfg = by_command_line(preset)
    optimizer = SGD(SimpleNamespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.zeros(1))])
    schedule = FixedLRSchedule(OmegaConf.create(cfg["lr_scheduler"]), optimizer)
    found = [schedule.step_begin_epoch(epoch) for epoch in range(1, epochs + 1)]
    assert found[:whole] == [rate] * whole
    assert found[whole:] == pytest.approx([rate * divisor**-power for power in range(1, epochs - whole + 1)])


@pytest.mark.parametrize(
    ("flags", "section", "expected"),
    [
        ("--optimizer adam --lr 0.001", "optimizer", {"_name": "adam", "lr": [0.001], "weight_decay": 0.0}),
        ("--criterion cross_entropy", "criterion", {"_name": "cross_entropy", "sentence_avg": True}),
        ("--lr-scheduler inverse_sqrt --warmup-updates 7", "lr_scheduler", {"_name": "inverse_sqrt", "lr": [1.0]}),
        ("--force-anneal 3 --lr-shrink 0.25", "lr_scheduler", {"_name": "fixed", "force_anneal": 3, "lr_shrink": 0.25}),
        ("--clip-norm 0.5 --max-epoch 2", "optimization", {"clip_norm": 0.5, "max_epoch": 2}),
        ("--batch-size 7", "dataset", {"batch_size": 7, "batch_size_valid": 7}),
        ("--tokens-per-sample 5", "task", {"_name": "contiguous_lm", "tokens_per_sample": 5}),
        ("--task language_modeling", "task", {"_name": "language_modeling"}),
        ("--dropout 0.2 --decoder-layers 1 --init-range 0.5", "model", {"dropout": 0.2, "decoder_layers": 1}),
        ("--projection-regularization 0.3", "criterion", {"projection_regularization": 0.3}),
    ],
)
def test_every_setting_can_be_overridden(flags: str, section: str, expected: dict[str, Any]) -> None:
    cfg = by_command_line("zaremba_lm_small_wt_pr", *flags.split())
    assert {name: cfg[section][name] for name in expected} == expected
