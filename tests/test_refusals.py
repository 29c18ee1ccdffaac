"""fairseq's commands end in the message alone where this package refuses; every other error keeps its traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import USER_DIR, RunCommand, run
from .hidden import python

TINY = "--task language_modeling --arch tied_transformer_lm --decoder-layers 1 --decoder-attention-heads 1 --lr 1"
TINY += " --optimizer sgd --batch-size 10 --tokens-per-sample 20 --max-update 1 --cpu --num-workers 0"
NO_GPU = "--fp16: needs a GPU for training; got a CPU. Use --bf16 or --amp.\n"


def refused(*command: object, **kwargs: object) -> str:
    """What a refused command writes to standard error."""
    process = run(*command, check=False, **kwargs)
    assert process.returncode == 2, process.stderr
    assert "Traceback" not in process.stderr
    return process.stderr


def test_a_training_that_is_refused_ends_in_one_line(lm_data: Path, tmp_path: Path) -> None:
    command = ("train", lm_data, *TINY.split(), "--save-dir", tmp_path, "--fp16")
    assert refused(*command) == f"fairseq-train: error: {NO_GPU}"
    process = run(*command, check=False, env={"FAIRSEQ_TIEDEMB_DEBUG": "1"})
    assert process.returncode == 1
    assert "Traceback (most recent call last)" in process.stderr
    assert process.stderr.endswith(f"\nValueError: {NO_GPU}")


@pytest.mark.parametrize(
    ("name", "flags"),
    [("eval-lm", ()), ("validate", ("--batch-size", 1)), ("generate", ("--batch-size", 1)), ("interactive", ())],
)
def test_a_checkpoint_that_is_refused_ends_in_one_line(
    name: str, flags: tuple[object, ...], lm_data: Path, tmp_path: Path
) -> None:
    path = tmp_path / "\x1b[2Jcut.pt"
    path.write_bytes(b"none")
    error = refused(name, lm_data, "--path", path, "--task", "language_modeling", *flags).splitlines()[-1]
    assert error.startswith(rf"fairseq-{name}: error: {tmp_path}/\x1b[2Jcut.pt: needs a whole checkpoint; got ")


def test_the_message_of_a_process_that_was_started_is_one_line(lm_data: Path, tmp_path: Path) -> None:
    command = ("train", lm_data, *TINY.split(), "--save-dir", tmp_path, "--fp16", "--distributed-world-size", 2)
    assert refused(*command).endswith(f"fairseq-train: error: {NO_GPU}")


def test_the_installed_command_does_the_same(lm_data: Path, tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "fairseq-train"
    command = [script, lm_data, "--user-dir", USER_DIR, *TINY.split(), "--save-dir", tmp_path, "--fp16"]
    process = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert (process.returncode, process.stderr[-len(NO_GPU) - 22 :]) == (2, f"fairseq-train: error: {NO_GPU}")
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_every_process_of_torchrun_says_it(lm_data: Path, tmp_path: Path) -> None:
    command = ("--nproc-per-node", 2, "-m", "fairseq_cli.train", lm_data, "--user-dir", USER_DIR)
    process = run("torch.distributed.run", *command, *TINY.split(), "--save-dir", tmp_path, "--fp16", check=False)
    assert f"fairseq-train: error: {NO_GPU}" in process.stderr
    assert "training.py" not in process.stderr


def test_an_error_of_fairseq_keeps_its_traceback(run_command: RunCommand, tmp_path: Path) -> None:
    process = run_command("train", tmp_path / "none", *TINY.split(), check=False)
    assert process.returncode == 1
    assert "Traceback (most recent call last)" in process.stderr
    assert process.stderr.rstrip().endswith(f"No such file or directory: '{tmp_path}/none/dict.txt'")


# Errors that Python raises in a function of ours are faults, and so are refusals of somebody else's code.
FAULTS = """
import sys
sys.argv[0] = "fairseq-train"
from fairseq_tiedemb import plugin, terminal
from fairseq_tiedemb.compat import refusals
def of(call):
    try: call()
    except Exception as error: return refusals.refusal(error)
def own(): raise ValueError("--flag: needs a; got b. Use a.")
assert of(own) is None
code = compile("def ours(error):\\n    raise error", terminal.__file__, "exec")
exec(code)
assert of(lambda: ours(ValueError("--flag: needs a; got b\\n. Use a."))) == "--flag: needs a; got b\\n. Use a."
assert of(lambda: ours(OSError("x: needs a; got b. Use a."))) == "x: needs a; got b. Use a."
assert of(lambda: ours(ValueError("invalid literal for int() with base 10: 'x'"))) is None
assert of(lambda: ours(KeyError("x"))) is None
assert of(lambda: ours(SystemExit(1)) if 0 else terminal.printable(None)) is None
"""


def test_faults_are_told_from_refusals() -> None:
    python(FAULTS)


@pytest.mark.parametrize("name", ["own.py", "train.py", "fairseq-own", "fairseq-tiedemb", "", "-c"])
def test_own_code_keeps_its_hook(name: str) -> None:
    program = f"import sys; sys.argv[0] = {name!r}; hook = sys.excepthook\nimport fairseq_tiedemb.plugin\n"
    python(program + "assert sys.excepthook is hook")
    if name == "own.py":
        python(program.replace("own.py", "fairseq-eval-lm") + "assert sys.excepthook is not hook")
