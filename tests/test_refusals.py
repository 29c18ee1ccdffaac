"""fairseq's commands end in the message alone where this package refuses; every other error keeps its traceback."""

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.search import DiverseBeamSearch
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import load_langpair_dataset

from fairseq_tiedemb import terminal
from fairseq_tiedemb.compat import refusals

from .conftest import USER_DIR, InProcess, RunCommand, run
from .untrained import write_checkpoint

TINY = "--task language_modeling --arch tied_transformer_lm --decoder-layers 1 --decoder-attention-heads 1 --lr 1"
TINY += " --optimizer sgd --batch-size 10 --tokens-per-sample 20 --max-update 1 --cpu --num-workers 0"
NO_GPU = "--amp: needs a GPU for training; got a CPU. Use --bf16.\n"


def refused(*command: object, **kwargs: object) -> str:
    """What a refused command writes to standard error."""
    process = run(*command, check=False, loads_plugin=True, **kwargs)
    assert process.returncode == 2, process.stderr
    assert "Traceback" not in process.stderr
    return process.stderr


def test_a_training_that_is_refused_ends_in_one_line(lm_data: Path, tmp_path: Path) -> None:
    command = ("train", lm_data, *TINY.split(), "--save-dir", tmp_path, "--amp")
    assert refused(*command) == f"fairseq-train: error: {NO_GPU}"
    process = run(*command, check=False, env={"FAIRSEQ_TIEDEMB_DEBUG": "1"})
    assert process.returncode == 1
    assert "Traceback (most recent call last)" in process.stderr
    assert process.stderr.endswith(f"\nValueError: {NO_GPU}")


def test_a_checkpoint_that_is_refused_ends_in_one_line(lm_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jcut.pt"
    path.write_bytes(b"none")
    error = refused("eval-lm", lm_data, "--path", path, "--task", "language_modeling").splitlines()[-1]
    assert error.startswith(rf"fairseq-eval-lm: error: {tmp_path}/\x1b[2Jcut.pt: needs a whole checkpoint; got ")


@pytest.mark.slow
def test_the_message_of_a_process_that_was_started_is_one_line(lm_data: Path, tmp_path: Path) -> None:
    command = ("train", lm_data, *TINY.split(), "--save-dir", tmp_path, "--amp", "--distributed-world-size", 2)
    assert refused(*command).endswith(f"fairseq-train: error: {NO_GPU}")


def test_hydra_does_the_same(lm_data: Path, tmp_path: Path) -> None:
    """Its own way to end with an error shows a traceback and has status 1."""
    recipe = ("--config-dir", USER_DIR / "config", "--config-name", "zaremba_lm_small_wt", f"task.data={lm_data}")
    settings = ("common.amp=true", "common.cpu=true", "dataset.num_workers=0")
    assert refused("hydra-train", *recipe, *settings, cwd=tmp_path).endswith(f"fairseq-hydra-train: error: {NO_GPU}")


@pytest.mark.slow
def test_every_process_of_torchrun_says_it(lm_data: Path, tmp_path: Path) -> None:
    command = ("--nproc-per-node", 2, "-m", "fairseq_cli.train", lm_data, "--user-dir", USER_DIR)
    process = run("torch.distributed.run", *command, *TINY.split(), "--save-dir", tmp_path, "--amp", check=False)
    assert f"fairseq-train: error: {NO_GPU}" in process.stderr
    assert "trainer.py" not in process.stderr


def test_an_error_of_fairseq_keeps_its_traceback(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("word\n")
    process = run_command("train", tmp_path, *TINY.split(), check=False)
    assert process.returncode == 1
    assert "Traceback (most recent call last)" in process.stderr
    assert "\nValueError: Incorrect dictionary format" in process.stderr


def error_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError


def test_faults_are_told_from_refusals() -> None:
    """Errors that Python raises in a function of ours are faults; refusals of somebody else's code are not ours."""
    ours: dict[str, Any] = {}
    exec(compile("def ours(error):\n    raise error", terminal.__file__, "exec"), ours)

    def refused(error: Exception) -> str | None:
        return refusals.refusal(error_of(lambda: ours["ours"](error)))

    assert refused(ValueError("--flag: needs a; got b\n. Use a.")) == "--flag: needs a; got b\n. Use a."
    assert refused(OSError("x: needs to be written; got y. Use a.")) == "x: needs to be written; got y. Use a."
    assert refused(ValueError("invalid literal for int() with base 10: 'x'")) is None
    assert refused(KeyError("x")) is None
    assert refusals.refusal(error_of(lambda: terminal.printable(cast(str, None)))) is None

    def theirs() -> None:
        raise ValueError("--flag: needs a; got b. Use a.")

    assert refusals.refusal(error_of(theirs)) is None


class LongRow:
    """A dataset whose only row is too long."""

    def filter_indices_by_size(self, indices: list[int], max_sizes: int) -> tuple[list[int], list[int]]:
        return [], indices

    def size(self, index: int) -> int:
        return 9


def test_what_fairseq_refuses_by_name_is_no_fault(
    train: InProcess, generate: InProcess, parallel_data: Path, lm_data: Path, tmp_path: Path
) -> None:
    error = error_of(lambda: generate(parallel_data, "--path", "x.pt", "--sampling"))
    assert refusals.refusal(error) == "--sampling requires --nbest to be equal to --beam"
    error = error_of(lambda: generate(parallel_data, "--path", tmp_path / "none.pt"))
    assert str(refusals.refusal(error)).startswith(f"Model file not found: {tmp_path}/none.pt")
    error = error_of(lambda: generate(parallel_data, "--path", tmp_path))
    assert re.match(f"{tmp_path}: needs a whole checkpoint; .* Is a directory", str(refusals.refusal(error)))
    error = error_of(lambda: Dictionary.load(str(tmp_path / "dict.de.txt")))
    needs = f"{tmp_path}/dict.de.txt: needs a dictionary of fairseq-preprocess; got no file."
    assert refusals.refusal(error) == f"{needs} Use the folder of its --destdir for the data."
    search = DiverseBeamSearch(Dictionary(), 2, 0.5)
    tiny = "--arch lstm_nmt --encoder-embed-dim 8 --encoder-hidden-size 8 --decoder-embed-dim 8 --decoder-hidden-size 8"
    write_checkpoint(tmp_path / "model.pt", parallel_data, *tiny.split(), "--decoder-out-embed-dim", "8")
    error = error_of(lambda: generate(parallel_data, "--path", tmp_path / "model.pt", "--max-len-b", 0))
    assert str(refusals.refusal(error)).startswith("min_len cannot be larger than max_len")
    error = error_of(lambda: search.step(0, torch.zeros(1, 3, 9), torch.zeros(1, 3, 0)))
    assert str(refusals.refusal(error)).startswith("DiverseBeamSearch requires --beam to be divisible by")
    options = ("src", None, "tgt", None, False, None, 1, True, False, 9, 9)
    error = error_of(lambda: load_langpair_dataset(str(parallel_data), "none", *options))
    assert str(refusals.refusal(error)).startswith("Dataset not found: none")
    error = error_of(lambda: FairseqTask(None).filter_indices_by_size([0], LongRow(), 5))
    assert str(refusals.refusal(error)).startswith("Size of sample #0 is invalid (=9) since max_positions=5, skip")
    assert refusals.refusal(error_of(lambda: SequenceGenerator([], Dictionary()))) is None
    error = error_of(lambda: generate(lm_data, "--path", tmp_path / "model.pt"))
    assert str(refusals.refusal(error)).startswith("Could not infer language pair")
    error = error_of(lambda: train(parallel_data, "--arch", "tied_transformer_iwslt_de_en", "--max-tokens", 99))
    assert refusals.refusal(error) == "--optimizer: needs a name; got none. Use adam, say: this preset has no recipe."


@pytest.mark.parametrize("name", ["own.py", "train.py", "fairseq-own", "fairseq-tiedemb", "", "-c"])
def test_own_code_keeps_its_hook(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = functools.partial(sys.__excepthook__)
    monkeypatch.setattr(sys, "excepthook", hook)
    monkeypatch.setattr(sys, "argv", [name])
    refusals.refusals_end_in_their_message()
    assert sys.excepthook is hook
    monkeypatch.setattr(sys, "argv", ["bin/fairseq-eval-lm"])
    refusals.refusals_end_in_their_message()
    assert sys.excepthook is not hook
