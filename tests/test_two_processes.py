"""Trainings by two processes: like one process with twice the batches, and resumed."""

from pathlib import Path

import pytest

from .conftest import InProcess, RunCommand
from .test_attention_nmt_commands import ADAM, BRIEF, COMMON
from .test_compat_commands import logged, losses, noise
from .test_transformer_commands import DYNAMICCONV, OURS, THREE_WAY, TIED, TRAINING, TRANSFORMER

SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--sample-break-mode", "eos", "--batch-size", 5)
FLAGS = ("--arch", "zaremba_lm_small", *SIZES, "--log-format", "json", "--num-workers", 0)
TWO = ("--distributed-world-size", 2)
LAYERS = ("softmax", "classes --classes 4", "tree", "short-list --short-list 6", "nce --noise-samples 20")
LAYERS += ("sampled --noise-samples 5",)
UNDROPPED = ("--dropout", "0", "--attention-dropout", "0")
SMOOTHED = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1"
RECURRENT = (
    "--arch lstm_nmt --criterion tied_cross_entropy --ddp-backend pytorch_ddp --find-unused-parameters",
    "--arch lstm_nmt_twwt --criterion tied_cross_entropy --ddp-backend c10d --sentence-avg",
    f"--arch dl4mt_twwt {SMOOTHED} --find-unused-parameters",
    f"--arch lstm_nmt_wt {SMOOTHED} --ddp-backend legacy_ddp",
)
OF_CONVOLUTION = ("--input-dropout", "0", "--weight-dropout", "0", "--relu-dropout", "0")
ATTENTION = (
    [*TRANSFORMER, "--sharing-method", "cosine", "--find-unused-parameters"],
    [*TRANSFORMER, THREE_WAY, "--sharing-method", "l2-input", "--find-unused-parameters"],
    [*TRANSFORMER, TIED, "--sharing-method", "square-output"],
    [*DYNAMICCONV, *OF_CONVOLUTION, THREE_WAY, "--sharing-method", "distance", "--ddp-backend", "legacy_ddp"],
)
# The data, and flags of five batches an epoch, so that the last update has one, and one process none.
CASES = [("lm_data", (*FLAGS, "--max-epoch", 2, "--output-layer", *layer.split())) for layer in LAYERS]
CASES += [("parallel_data", (*COMMON, *ADAM, *BRIEF, *flags.split())) for flags in RECURRENT]
CASES += [("parallel_data", (*TRAINING, *flags, *OURS, *UNDROPPED)) for flags in ATTENTION]
CLASSES = "a 0\nb 1\nc 0\nd 1\ne 0\nf 2\n"


@pytest.mark.slow
def test_an_empty_batch_takes_nothing_from_the_others_of_its_update(
    parallel_data: Path, run_command: RunCommand, train: InProcess
) -> None:
    """Of five batches one process has three, the other two and an empty one."""
    command = (parallel_data, *TRAINING, *TRANSFORMER, TIED, *OURS, *UNDROPPED, "--max-epoch", 3, "--no-save")
    command += ("--optimizer", "sgd", "--lr", 0.5, "--lr-scheduler", "fixed", "--clip-norm", 0)
    two = run_command("train", *command, *TWO, "--update-freq", 3, fresh=True).stdout
    for name, values in losses(train(*command, "--update-freq", 6)).items():
        assert losses(two)[name] == pytest.approx(values, abs=0.002), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "flags"), CASES, ids=[*LAYERS, *RECURRENT, "untied", "three-way", "tied", "dynamicconv"]
)
def test_two_processes_train_like_one_with_twice_the_batches(
    data: str, flags: tuple, run_command: RunCommand, train: InProcess, request: pytest.FixtureRequest
) -> None:
    command = (request.getfixturevalue(data), *flags, "--no-save")
    two = run_command("train", *command, *TWO, fresh=True)
    # torch warns where the search for them finds none.
    assert noise(two.stdout + two.stderr) == [] or "--find-unused-parameters" in flags
    one = train(*command, "--update-freq", 2)
    if "--noise-samples" in flags:  # which each process draws for itself
        found, expected = logged(two.stdout, "valid_ppl"), logged(one, "valid_ppl")
        assert found == pytest.approx(expected, rel=0.1)
        assert found != expected
    else:
        for name, values in losses(one).items():
            assert losses(two.stdout)[name] == pytest.approx(values, abs=0.002), name


@pytest.mark.slow
def test_two_processes_resume_without_the_file_of_classes(
    run_command: RunCommand, lm_data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "classes"
    file.write_text(CLASSES)
    flags = (*FLAGS, "--output-layer", "classes", "--class-file", file)
    whole = run_command("train", lm_data, *flags, "--max-epoch", 2, "--no-save", "--update-freq", 2)
    flags = (*flags, *TWO, "--save-dir", tmp_path, "--max-epoch")
    run_command("train", lm_data, *flags, 1, fresh=True)
    file.unlink()
    resumed = run_command("train", lm_data, *flags, 2, fresh=True)
    assert noise(resumed.stdout + resumed.stderr) == []
    assert logged(resumed.stdout, "valid_loss")[-1] == pytest.approx(logged(whole.stdout, "valid_loss")[-1], abs=0.002)
