"""Shared fixtures: one thread, tiny corpora preprocessed by the real command, and a way to run commands.

Tests marked `slow`, `gpu` or `benchmark` are left out unless asked for, as with `pytest -m slow` (pyproject.toml).
"""

import argparse
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Before torch is imported: two threads on a shared two-core machine are many times slower than one.
os.environ["OMP_NUM_THREADS"] = "1"

import fairseq_cli.train
import pytest
import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig

USER_DIR = Path(__file__).resolve().parent.parent / "fairseq_tiedemb"

# sentences of each split of the tiny corpora
SPLIT_SIZES = {"train": 100, "valid": 20, "test": 100}

RunCommand = Callable[..., subprocess.CompletedProcess[str]]


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    """Give every test the same random numbers, whatever ran before it."""
    torch.manual_seed(1)
    random.seed(1)


def run(
    name: str, *args: object, user_dir: Path | None = USER_DIR, check: bool = True, **kwargs: object
) -> subprocess.CompletedProcess[str]:
    """Run one of fairseq's commands in a fresh process.

    Args:
        name: the command without its prefix, `train` for `fairseq-train`; or a module, `torch.distributed.run`.
        args: its arguments; everything is turned into text.
        user_dir: the plugin to load, or None for fairseq alone. fairseq-hydra-train and modules take no `--user-dir`.
        check: fail the test, showing both streams, if the command fails.
        kwargs: for `subprocess.run`: `cwd`, `env` (added to the environment), `input`, `timeout`.

    Returns:
        the finished process: `stdout`, `stderr`, `returncode`.
    """
    module = name if "." in name else f"fairseq_cli.{name.replace('-', '_')}"
    command = [sys.executable, "-m", module, *map(str, args)]
    if user_dir is not None and "." not in name:
        command += [f"common.user_dir={user_dir}"] if name == "hydra-train" else ["--user-dir", str(user_dir)]
    environment = {**os.environ, **kwargs.pop("env", {})}  # type: ignore[dict-item]
    options = {"timeout": 600, **kwargs}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if check and process.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n--- stdout\n{process.stdout}\n--- stderr\n{process.stderr}", pytrace=False)
    return process


@pytest.fixture(scope="session")
def run_command() -> RunCommand:
    """`run_command(name, *args)` runs a fairseq command in a fresh process, see `run`."""
    return run


def write_parallel_text(folder: Path, seed: int = 1) -> None:
    """Write `train`, `valid` and `test` with the extensions `.src` and `.tgt`; the target is the source reversed."""
    rng = random.Random(seed)
    for split, size in SPLIT_SIZES.items():
        sentences = [rng.choices("abcdefghij", k=rng.randint(1, 12)) for _ in range(size)]
        (folder / f"{split}.src").write_text("".join(" ".join(words) + "\n" for words in sentences))
        (folder / f"{split}.tgt").write_text("".join(" ".join(reversed(words)) + "\n" for words in sentences))


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw text of the tiny corpora: {train,valid,test}.{src,tgt}."""
    folder = tmp_path_factory.mktemp("text")
    write_parallel_text(folder)
    return folder


def preprocess(destination: Path, prefix: str, *args: str) -> Path:
    """Binarize the tiny corpora with the real fairseq-preprocess; `prefix` is a path with {split} in it."""
    prefixes = [part for split in SPLIT_SIZES for part in (f"--{split}pref", prefix.format(split=split))]
    run("preprocess", *prefixes, "--destdir", destination, *args)
    return destination


@pytest.fixture(scope="session")
def parallel_data(text_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A preprocessed parallel corpus, src to tgt, with one dictionary for both."""
    languages = ("--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary")
    return preprocess(tmp_path_factory.mktemp("parallel"), f"{text_folder}/{{split}}", *languages)


@pytest.fixture(scope="session")
def lm_data(text_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A preprocessed monolingual corpus, the source side of `parallel_data`, for language models."""
    return preprocess(tmp_path_factory.mktemp("lm"), f"{text_folder}/{{split}}.src", "--only-source")


def configuration(parser: argparse.ArgumentParser, data: Path, *flags: object) -> DictConfig:
    """What a command makes of its command line."""
    arguments = [str(flag) for flag in (data, "--user-dir", USER_DIR, *flags)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


@pytest.fixture
def train(caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """`train(data, *flags)` is fairseq-train in this process; it returns what was logged."""

    def train(data: Path, *flags: object) -> str:
        caplog.clear()
        vars(checkpoint_utils.save_checkpoint).pop("best", None)  # of an earlier training in this process
        with caplog.at_level(logging.INFO):
            fairseq_cli.train.main(configuration(options.get_training_parser(), data, *flags))
        return "\n".join(caplog.messages)

    return train
