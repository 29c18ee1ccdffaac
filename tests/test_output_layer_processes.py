"""Output layers trained by two processes: like one process with twice the batches, and resumed."""

from pathlib import Path

import pytest

from .conftest import RunCommand
from .test_compat_commands import logged, losses, noise

SIZES = ("--decoder-embed-dim", 16, "--decoder-hidden-size", 16, "--sample-break-mode", "eos", "--batch-size", 5)
FLAGS = ("--arch", "zaremba_lm_small", *SIZES, "--log-format", "json", "--num-workers", 0)
TWO = ("--distributed-world-size", 2)
LAYERS = {
    "softmax": (),
    "classes": ("--classes", 4),
    "tree": (),
    "short-list": ("--short-list", 6),
    "nce": ("--noise-samples", 20),
    "sampled": ("--noise-samples", 5),
}
BY_NOISE = ("nce", "sampled")
CLASSES = "a 0\nb 1\nc 0\nd 1\ne 0\nf 2\n"


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_two_processes_train_like_one_with_twice_the_batches(
    layer: str, run_command: RunCommand, lm_data: Path
) -> None:
    flags = (*FLAGS, "--output-layer", layer, *LAYERS[layer], "--max-epoch", 2, "--no-save")
    two = run_command("train", lm_data, *flags, *TWO, fresh=True)
    assert noise(two.stdout + two.stderr) == []
    one = run_command("train", lm_data, *flags, "--update-freq", 2)
    if layer in BY_NOISE:  # which each process draws for itself
        found, expected = logged(two.stdout, "valid_ppl"), logged(one.stdout, "valid_ppl")
        assert found == pytest.approx(expected, rel=0.1)
        assert found != expected
    else:
        for name, values in losses(one.stdout).items():
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
