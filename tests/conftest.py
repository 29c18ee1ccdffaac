"""Shared fixtures: one thread, tiny corpora preprocessed by the real command, and ways to run commands.

Tests marked `slow`, `gpu` or `benchmark` are left out unless asked for, as with `pytest -m slow` (pyproject.toml).
"""

import argparse
import fcntl
import gc
import logging
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before torch is imported: two threads on a shared two-core machine are many times slower than one.
os.environ["OMP_NUM_THREADS"] = "1"
# torch's default on every machine, and nothing is measured in every command; benchmarks may run by another library.
os.environ.setdefault("FAIRSEQ_TIEDEMB_PRODUCTS", "blas")

import pytest
from _pytest.capture import CaptureResult

from .commands import run_module

# Imported where they are used: torch and fairseq take seconds, and xdist's controller, which reads this, runs no test.
if TYPE_CHECKING:
    from omegaconf import DictConfig

USER_DIR = Path(__file__).resolve().parent.parent / "fairseq_tiedemb"

# Commands that import a plugin as soon as they have begun.
COMMANDS = ("preprocess", "train", "generate", "interactive", "eval-lm", "validate")

# sentences of each split of the tiny corpora
SPLIT_SIZES = {"train": 100, "valid": 20, "test": 100}

RunCommand = Callable[..., subprocess.CompletedProcess[str]]
MadeOnce = Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]
Cli = Callable[..., CaptureResult[str]]
InProcess = Callable[..., str]
Evaluate = Callable[..., tuple[int, float]]


def pytest_collectstart() -> None:
    """Every test file finds fairseq and its commands imported, before the package's import brings the plugin."""
    import fairseq_cli.eval_lm
    import fairseq_cli.generate
    import fairseq_cli.train  # noqa: F401


def pytest_runtest_setup(item: pytest.Item) -> None:
    import torch

    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a GPU")


def pytest_collection_finish() -> None:
    import torch

    from .settings import keep_what_is_parsed

    torch.set_num_threads(1)
    # torch notes, for GPUs, the lines that have seeded random numbers, which takes longer than many a test.
    for device in (torch.cuda, torch.xpu):
        if not device.is_available():
            device.manual_seed_all = lambda _: None
    # Seconds to wait for each process that loads data, five as torch has it, when an iterator is thrown away half-read:
    # garbage collection closes the queue by which it would be told to end, so that it is waited for in vain and killed.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1
    keep_what_is_parsed()
    # Whatever lives now lives to the end: garbage collection need not look at it again and again, nor so often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(autouse=True)
def seed() -> None:
    """Give every test the same random numbers, whatever ran before it."""
    import torch

    torch.manual_seed(1)
    random.seed(1)


def multiply_as_torch_does() -> None:
    """Undo ``bfloat16.multiply_in_float32``."""
    import torch

    bfloat16 = sys.modules.get("fairseq_tiedemb.bfloat16")
    if bfloat16 is not None and bfloat16._operators:
        bfloat16._operators.clear()
        torch.backends.cuda.enable_flash_sdp(True)


@pytest.fixture(autouse=True)
def own_products() -> Iterator[None]:
    """Give every test torch's own products, whatever a training in bfloat16 before it needed on this processor."""
    yield
    multiply_as_torch_does()


def run(
    name: str,
    *args: object,
    user_dir: Path | None = USER_DIR,
    check: bool = True,
    fresh: bool = False,
    loads_plugin: bool = False,
    env: dict[str, str] | None = None,
    **kwargs: Any,
) -> subprocess.CompletedProcess[str]:
    """Run one of fairseq's commands in a process of its own.

    Args:
        name: the command without its prefix, `train` for `fairseq-train`; or a module, `torch.distributed.run`.
        args: its arguments; everything is turned into text.
        user_dir: the plugin to load, or None for fairseq alone. fairseq-hydra-train and modules take no `--user-dir`.
        check: fail the test, showing both streams, if the command fails.
        fresh: start Python anew; otherwise the process is forked from one that has imported fairseq, and this plugin if
            the command loads it (commands.py).
        loads_plugin: import the plugin in the command also where it is forked, as in a fresh process.
        env: added to the environment.
        kwargs: as of `subprocess.run`: `cwd`, `input`, `timeout`.

    Returns:
        the finished process: `stdout`, `stderr`, `returncode`.
    """
    module = name if "." in name else f"fairseq_cli.{name.replace('-', '_')}"
    command = [module, *map(str, args)]
    if user_dir is not None and "." not in name:
        command += [f"common.user_dir={user_dir}"] if name == "hydra-train" else ["--user-dir", str(user_dir)]
    has_plugin = name in COMMANDS and user_dir == USER_DIR and not (env or loads_plugin)
    process = run_module(command, fresh=fresh, env={**os.environ, **(env or {})}, has_plugin=has_plugin, **kwargs)
    if check and process.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n--- stdout\n{process.stdout}\n--- stderr\n{process.stderr}", pytrace=False)
    return process


@pytest.fixture(scope="session")
def run_command() -> RunCommand:
    """`run_command(name, *args)` runs a fairseq command in a process of its own, see `run`."""
    return run


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """`made_once(name, make)` is a new folder and what `make(folder)` returned, for all of xdist's workers together."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def made_once(name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
        folder, result = root / name, root / f"{name}.pickle"
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
                folder.mkdir()
                result.write_bytes(pickle.dumps(make(folder)))
        return folder, pickle.loads(result.read_bytes())

    return made_once


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """`cli(name, *args)` is a command of `fairseq-tiedemb` in this process; it returns what that printed: `out`, `err`.

    Errors do not come through: the exit status of what is refused is 2, which `status` is to say; it leaves no file.
    """
    from fairseq_tiedemb.cli import main

    def cli(*args: object, status: int = 0) -> CaptureResult[str]:
        capsys.readouterr()
        before = sorted(tmp_path.rglob("*"))
        found = main([str(arg) for arg in args])
        printed = capsys.readouterr()
        assert found == status, printed.err
        assert not status or sorted(tmp_path.rglob("*")) == before
        return printed

    return cli


def write_parallel_text(folder: Path, seed: int = 1) -> None:
    """Write `train`, `valid` and `test` with the extensions `.src` and `.tgt`; the target is the source reversed."""
    rng = random.Random(seed)
    for split, size in SPLIT_SIZES.items():
        sentences = [rng.choices("abcdefghij", k=rng.randint(1, 12)) for _ in range(size)]
        (folder / f"{split}.src").write_text("".join(" ".join(words) + "\n" for words in sentences))
        (folder / f"{split}.tgt").write_text("".join(" ".join(reversed(words)) + "\n" for words in sentences))


@pytest.fixture(scope="session")
def text_folder(made_once: MadeOnce) -> Path:
    """The raw text of the tiny corpora: {train,valid,test}.{src,tgt}."""
    return made_once("text", write_parallel_text)[0]


def preprocess(destination: Path, prefix: str, *args: str) -> Path:
    """Binarize the tiny corpora with the real fairseq-preprocess; `prefix` is a path with {split} in it."""
    prefixes = [part for split in SPLIT_SIZES for part in (f"--{split}pref", prefix.format(split=split))]
    run("preprocess", *prefixes, "--destdir", destination, *args, loads_plugin=True)
    return destination


@pytest.fixture(scope="session")
def parallel_data(text_folder: Path, made_once: MadeOnce) -> Path:
    """A preprocessed parallel corpus, src to tgt, with one dictionary for both."""
    languages = ("--source-lang", "src", "--target-lang", "tgt", "--joined-dictionary")
    return made_once("parallel", lambda folder: preprocess(folder, f"{text_folder}/{{split}}", *languages))[0]


@pytest.fixture(scope="session")
def lm_data(text_folder: Path, made_once: MadeOnce) -> Path:
    """A preprocessed monolingual corpus, the source side of `parallel_data`, for language models."""
    return made_once("lm", lambda folder: preprocess(folder, f"{text_folder}/{{split}}.src", "--only-source"))[0]


def configuration(parser: argparse.ArgumentParser, data: Path, *flags: object) -> "DictConfig":
    """What a command makes of its command line."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    arguments = [str(flag) for flag in (data, "--user-dir", USER_DIR, *flags)]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))


@pytest.fixture
def train(caplog: pytest.LogCaptureFixture) -> InProcess:
    """`train(data, *flags)` is fairseq-train in this process; it returns what was logged."""
    import fairseq_cli.train
    from fairseq import checkpoint_utils, options

    def train(data: Path, *flags: object) -> str:
        caplog.clear()
        vars(checkpoint_utils.save_checkpoint).pop("best", None)  # of an earlier training in this process
        with caplog.at_level(logging.INFO):
            fairseq_cli.train.main(configuration(options.get_training_parser(), data, *flags))
        return "\n".join(caplog.messages)

    return train


@pytest.fixture
def evaluate(caplog: pytest.LogCaptureFixture) -> Evaluate:
    """`evaluate(data, *flags)` is fairseq-eval-lm in this process; it returns tokens and perplexity."""
    import fairseq_cli.eval_lm
    from fairseq import options

    from .runs import evaluated

    def evaluate(data: Path, *flags: object) -> tuple[int, float]:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            fairseq_cli.eval_lm.main(configuration(options.get_eval_lm_parser(), data, "--num-workers", 0, *flags))
        return evaluated("\n".join(caplog.messages))

    return evaluate


@pytest.fixture
def generate(capsys: pytest.CaptureFixture[str]) -> InProcess:
    """`generate(data, *flags)` is fairseq-generate in this process; it returns what was printed."""
    import fairseq_cli.generate
    from fairseq import options

    def generate(data: Path, *flags: object) -> str:
        capsys.readouterr()
        fairseq_cli.generate.main(configuration(options.get_generation_parser(), data, "--num-workers", 0, *flags))
        return capsys.readouterr().out

    return generate
