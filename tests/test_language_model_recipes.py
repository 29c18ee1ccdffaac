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

from fairseq_tiedemb.models import _recipe
from fairseq_tiedemb.models._stream_lm import StreamLM

from .conftest import USER_DIR

CONFIG = USER_DIR / "config"
SMALL = ("zaremba_lm_small", "zaremba_lm_small_wt", "zaremba_lm_small_pr", "zaremba_lm_small_wt_pr")
ZAREMBA = (*SMALL, "zaremba_lm_medium", "zaremba_lm_medium_wt", "zaremba_lm_large", "zaremba_lm_large_wt")
GAL = ("gal_lm_small", "gal_lm_small_wt", "gal_lm_large", "gal_lm_large_wt")
HIGHWAY = tuple(f"highway_lm_{size}{tied}" for size in ("8x890", "9x860", "10x830") for tied in ("", "_wt"))
FEEDFORWARD = ("feedforward_lm", "feedforward_lm_wt", "bengio_lm")
PRESETS = (*ZAREMBA, *GAL, *HIGHWAY, *FEEDFORWARD)
# One of each file in config/recipe; among the quick ones, one that its preset's own file changes.
RECIPES = ("zaremba_lm_small_pr", "gal_lm_large", "bengio_lm", "dl4mt_wt")
SLOW_RECIPES = ("zaremba_lm_medium", "zaremba_lm_large_wt", "highway_lm_9x860_wt", "gal_lm_small_wt")
SLOW_RECIPES += ("feedforward_lm_wt", "lstm_nmt_small_wt", "lstm_nmt_twwt")


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
    ours = {name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, StreamLM)}
    assert ours - {"tied_lstm_lm", "highway_lm"} == set(PRESETS)


@pytest.mark.parametrize("preset", [*RECIPES, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW_RECIPES)])
def test_the_command_line_reads_a_file_as_hydra_does(preset: str) -> None:
    hydra, command_line = by_hydra(preset), by_command_line(preset)
    for section in ("model", "task", "criterion", "lr_scheduler", "optimization", "dataset", "checkpoint"):
        assert hydra[section] == command_line[section], section
    assert hydra["optimizer"] == {name: command_line["optimizer"][name] for name in hydra["optimizer"]}


STREAM = {"task._name": "contiguous_lm", "task.sample_break_mode": "none", "criterion._name": "tied_cross_entropy"}
STREAM |= {"optimizer._name": "sgd", "optimizer.weight_decay": 0.0}
ROWS = STREAM | {"dataset.batch_size": 20, "optimizer.momentum": 0.0, "optimization.sentence_avg": True}
ROWS |= {"criterion.sentence_avg": True}
MASKS = [f"model.dropout_{place}" for place in ("words", "inputs", "states", "outputs")]
NETWORK = STREAM | {"task.tokens_per_sample": 5, "dataset.batch_size": 200, "optimization.sentence_avg": False}
NETWORK |= {"optimizer._name": "fused_adam", "optimizer.adam_betas": "(0.9, 0.999)", "optimization.lr": [0.002]}
NETWORK |= {"model.ngram_order": 5, "model.decoder_embed_dim": 100, "model.decoder_hidden_size": 200}
NETWORK |= {"model.activation_fn": "tanh", "model.dropout": 0.0, "model.init_range": 0.1, "optimization.clip_norm": 0.0}
# tokens of a row in a batch, clipping, dropout; then the first rate, epochs at it, divisor, epochs
ZAREMBAS = {
    "small": (20, 5.0, 0.0, (1.0, 5, 2.0, 13)),
    "medium": (35, 5.0, 0.5, (1.0, 7, 1.2, 39)),
    "large": (35, 10.0, 0.65, (1.0, 15, 1.15, 55)),
}
SCHEDULES = {f"zaremba_lm_{size}": settings[3] for size, settings in ZAREMBAS.items()}
SCHEDULES |= {"gal_lm_large": (1.0, 11, 1.15, 55), "gal_lm_small": (1.0, 11, 1.15, 40)}
SCHEDULES |= {"highway_lm_9x860": (0.2, 20, 1.02, 500)}


def zaremba(preset: str) -> dict[str, Any]:
    tokens, clip_norm, dropout, _ = ZAREMBAS[preset.split("_")[2]]
    penalty = 0.15 if preset.endswith("_pr") else 0.0
    settings = {"task.tokens_per_sample": tokens, "optimization.clip_norm": clip_norm, "model.dropout": dropout}
    return ROWS | settings | {"optimization.lr": [1.0], "criterion.projection_regularization": penalty}


def gal(preset: str) -> dict[str, Any]:
    """The small one has the sizes of Zaremba's, and lighter masks."""
    large = "large" in preset
    masks = dict(zip(MASKS, (0.3, 0.5, 0.3, 0.5) if large else (0.1, 0.2, 0.1, 0.2), strict=True))
    if large:
        sizes = {"optimization.clip_norm": 10.0, "optimizer._name": "sgdw"}
        sizes["optimizer.weight_decay"] = 0.0 if preset.endswith("_wt") else 1e-7
    else:
        zarembas = by_command_line("zaremba_lm_small")["model"]
        sizes = {f"model.{name}": zarembas[name] for name in ("init_range", "decoder_hidden_size")}
        sizes["optimization.clip_norm"] = 5.0
    return STREAM | masks | {"model.dropout": 0.0, "task.tokens_per_sample": 35} | sizes


def highway(preset: str) -> dict[str, Any]:
    depth, size = map(int, preset.split("_")[2].split("x"))
    sizes = {"model.decoder_depth": depth, "model.decoder_embed_dim": size, "model.decoder_hidden_size": size}
    masks = dict(zip(MASKS, (0.25, 0.75, 0.25, 0.75), strict=True))
    rest = {"model.transform_bias": -2.0, "criterion.l2_regularization": 1e-7, "optimization.clip_norm": 10.0}
    return STREAM | sizes | masks | rest


PAPERS = {
    **dict.fromkeys(ZAREMBA, zaremba),
    **dict.fromkeys(GAL, gal),
    **dict.fromkeys(HIGHWAY, highway),
    **{
        preset: lambda preset: NETWORK | {"model.deep_output": "none" if preset == "bengio_lm" else "linear"}
        for preset in FEEDFORWARD
    },
    "dl4mt_twwt": lambda _: {
        **{"optimizer._name": "adadelta", "optimizer.adadelta_rho": 0.95, "optimizer.adadelta_eps": 1e-6},
        **{"optimizer.weight_decay": 0.0, "optimizer.lr": [1.0], "lr_scheduler._name": "fixed"},
        **{"optimization.clip_norm": 1.0, "optimization.sentence_avg": True, "optimization.max_update": 300_000},
        **{"dataset.batch_size": 80, "task.max_source_positions": 50, "task.max_target_positions": 50},
        **{"model.dropout": 0.0, "criterion.label_smoothing": 0.0},
    },
}


@pytest.mark.parametrize("preset", PAPERS)
def test_recipes_are_the_papers(preset: str) -> None:
    cfg, expected = by_command_line(preset), PAPERS[preset](preset)
    assert {name: cfg[name.split(".")[0]][name.split(".")[1]] for name in expected} == expected


def test_the_learning_rate_falls_to_0_at_the_last_update() -> None:
    """However many updates the user wants."""
    for flags, last in (((), 2790), (("--max-update", "100"), 100)):
        cfg = by_command_line("feedforward_lm_wt", *flags)
        optimizer = SGD(SimpleNamespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.zeros(1))])
        schedule = PolynomialDecayLRSchedule(OmegaConf.create(cfg["lr_scheduler"]), optimizer)
        schedule.step_begin_epoch(1)
        found = [schedule.step_update(step) for step in (0, last // 2, last - 1, last)]
        assert found == pytest.approx([0.002, 0.001, 0.002 / last, 0.0])


def test_decay_begins_with_the_first_of_several_rates() -> None:
    cfg = by_command_line("feedforward_lm_wt", "--lr", "0.4,0.2", "--max-update", "100")
    optimizer = SGD(SimpleNamespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.zeros(1))])
    schedule = PolynomialDecayLRSchedule(OmegaConf.create(cfg["lr_scheduler"]), optimizer)
    found = []
    for epoch, update in ((1, 10), (2, 20), (3, 30)):
        schedule.step_begin_epoch(epoch)
        found.append(schedule.step_update(update))
    assert found == pytest.approx([0.4 * 0.9, 0.2 * 0.8, 0.2 * 0.7])


@pytest.mark.parametrize("preset", SCHEDULES)
def test_learning_rates_are_the_papers(preset: str) -> None:
    rate, whole, divisor, epochs = SCHEDULES[preset]
    cfg = by_command_line(preset)
    optimizer = SGD(SimpleNamespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.zeros(1))])
    schedule = FixedLRSchedule(OmegaConf.create(cfg["lr_scheduler"]), optimizer)
    found = [schedule.step_begin_epoch(epoch) for epoch in range(1, epochs + 1)]
    assert cfg["optimization"]["max_epoch"] == epochs
    assert found[:whole] == [rate] * whole
    assert found[whole:] == pytest.approx([rate * divisor**-power for power in range(1, epochs - whole + 1)])


@pytest.mark.parametrize(
    ("flags", "section", "expected"),
    [
        ("--optimizer adam --lr 0.001", "optimizer", {"_name": "adam", "lr": [0.001], "weight_decay": 0.0}),
        ("--criterion cross_entropy", "criterion", {"_name": "cross_entropy", "sentence_avg": True}),
        ("--lr-scheduler inverse_sqrt --warmup-updates 7", "lr_scheduler", {"_name": "inverse_sqrt", "lr": [1.0]}),
        ("--force-anneal 3 --lr-shrink 0.25", "lr_scheduler", {"_name": "fixed", "force_anneal": 3, "lr_shrink": 0.25}),
        ("--lr 1,0.5,0.1", "lr_scheduler", {"_name": "fixed", "lr": [1.0, 0.5, 0.1], "force_anneal": None}),
        ("--lr=[1,0.5] --force-anneal 3", "lr_scheduler", {"_name": "fixed", "lr": [1.0, 0.5], "force_anneal": 3}),
        ("--lr 0.5", "lr_scheduler", {"_name": "fixed", "lr": [0.5], "force_anneal": 6}),
        ("--lr-scheduler fixed", "lr_scheduler", {"_name": "fixed", "lr": [1.0], "force_anneal": 6}),
        (
            "--lr-scheduler polynomial_decay --max-update 9",
            "lr_scheduler",
            {"_name": "polynomial_decay", "force_anneal": None, "total_num_update": 9},
        ),
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
