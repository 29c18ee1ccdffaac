"""The page of messages: stock fairseq says them today, and every answer of the page has its test."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from .conftest import RunCommand
from .documents import REPOSITORY
from .stock_faults import FAULTS

PAGE = REPOSITORY / "fairseq_tiedemb/compat/README.md"
FAIRSEQ_OF_TODAY = "test_install.py::test_exactly_one_fairseq_is_chosen"
SACREBLEU = "test_compat_messages.py::test_sacrebleu_scores_a_file"
# What comes of a message with the plugin: nothing is wrong ("fine"), or a better message. Or the test of its answer.
ANSWERS = {
    "mutable default <class 'fairseq.dataclass.configs.CommonConfig'> for field common is not allowed": (
        FAIRSEQ_OF_TODAY
    ),
    "Ignoring version 2.0.6 of omegaconf since it has invalid metadata": FAIRSEQ_OF_TODAY,
    ".* suffix can only be used with `==` or `!=` operators": FAIRSEQ_OF_TODAY,
    "Weights only load failed": "fine",
    "Unsupported global: GLOBAL argparse.Namespace was not an allowed global by default": "fine",
    "invalid choice: 'lstm_nmt_wt'": "fine",
    "module 'numpy' has no attribute 'float'": "fine",
    "module 'numpy' has no attribute 'int'": "fine",
    "module 'numpy' has no attribute 'compat'": "fine",
    "percentile() got an unexpected keyword argument 'interpolation'": "fine",
    "'NoneType' object has no attribute 'xla_device'": "fine",
    "Torch not compiled with CUDA enabled": "--fp16: needs a GPU for training; got a CPU",
    "world size is 2 but have 0 available devices": "test_compat_processes.py::test_two_cpu_processes_are_started",
    "integer modulo by zero": "test_compat_processes.py::test_a_process_of_torchrun_knows_its_place",
    "mat1 and mat2 shapes cannot be multiplied": "fine",
    "one of the variables needed for gradient computation has been modified by an inplace operation": "fine",
    "KeyError: None": "fine",
    "negative seek position -1": "whose line 1 has the byte 0xe9",
    "cannot mmap an empty file": "train.bin: needs at least one sentence; got an empty file",
    "Each element of `refs` should be a sequence of strings": SACREBLEU,
    "Scorer.__init__() takes 2 positional arguments but 4 were given": SACREBLEU,
    "terminate called without an active exception": (
        "test_compat_exit.py::test_a_command_is_not_aborted_by_the_thread_that_reads_ahead"
    ),
    "`torch.jit.script` is deprecated": (
        "test_compat_exit.py::test_a_command_is_not_aborted_by_the_thread_that_reads_ahead"
    ),
}
# pip's text about a file of an index; a program of its own, which the test of the answer has; torch 2.14 and newer.
NOT_PROVOKED = {
    "Ignoring version 2.0.6 of omegaconf since it has invalid metadata",
    "terminate called without an active exception",
    "`torch.jit.script` is deprecated",
}


def outcomes(run_command: RunCommand, data: Path, *plugin: str) -> dict[str, str]:
    """What becomes of every call that stock fairseq ends with a message of the page."""
    command = run_command("tests.stock_faults", data, *plugin, cwd=REPOSITORY)
    return json.loads(command.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def stock(run_command: RunCommand, parallel_data: Path) -> dict[str, str]:
    return outcomes(run_command, parallel_data)


@pytest.fixture(scope="module")
def mended(run_command: RunCommand, parallel_data: Path) -> dict[str, str]:
    return outcomes(run_command, parallel_data, "plugin")


def messages() -> list[str]:
    """Those of the page: its headings of the third level, and what stands under them as `Also:`."""
    lines = re.findall(r"^(?:###|Also:) (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [text for line in lines for _, text in re.findall(r"(`+) ?(.+?) ?\1(?!`)", line)]


def test_every_message_of_the_page_has_its_test() -> None:
    assert sorted(messages()) == sorted(ANSWERS)
    assert set(ANSWERS) - set(FAULTS) == NOT_PROVOKED
    for file, test in (answer.split("::") for answer in ANSWERS.values() if "::" in answer):
        assert f"\ndef {test}(" in (REPOSITORY / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("text", FAULTS)
def test_stock_fairseq_says_it(text: str, stock: dict[str, str]) -> None:
    if stock[text] == "fine" and int(np.__version__.split(".")[0]) < 2:
        pytest.skip("this numpy still has what newer ones have not")
    if "CUDA" in text and torch.backends.cuda.is_built() or "devices" in text and torch.cuda.is_available():
        pytest.skip("of a torch without CUDA, or a machine without a GPU")
    assert text in stock[text]


@pytest.mark.parametrize("text", [text for text, answer in ANSWERS.items() if "::" not in answer])
def test_the_plugin_answers_it(text: str, mended: dict[str, str]) -> None:
    if "CUDA" in text and torch.cuda.is_available():
        pytest.skip("of a machine without a GPU")
    assert ANSWERS[text] in mended[text]


def test_sacrebleu_scores_a_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b c d e\n")
    command = [sys.executable, "-m", "sacrebleu", "text", "-i", "text", "--score-only"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert process.stdout == "100.0\n", process.stderr
