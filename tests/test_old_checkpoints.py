"""Checkpoints that version 0.1.0 wrote: they load, score the same, and are trained on."""

import json
from pathlib import Path

import numpy as np
import pytest
from fairseq.checkpoint_utils import load_checkpoint_to_cpu

import fairseq_tiedemb.plugin  # noqa: F401 (which registers the models)

from .checkpoints_0_1_0.cases import CASES, FOLDER, RANDOM, RESUMED, RESUMES, UPDATES, answers, flags, machine, unpack
from .conftest import InProcess

every_checkpoint = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """What `cases.answers` found when the checkpoints were written, by `name/answer`."""
    return dict(np.load(FOLDER / "expected.npz"))


@pytest.fixture(scope="module")
def same_machine() -> bool:
    """Whether this is the torch and the kind of processor that the checkpoints were written with."""
    return machine() == json.loads((FOLDER / "machine.json").read_text())


def test_every_checkpoint_has_its_case() -> None:
    assert {path.name.removesuffix(".pt.xz") for path in FOLDER.glob("*.xz")} == set(CASES)


@every_checkpoint
def test_an_old_checkpoint_gives_the_same_scores(
    name: str, expected: dict[str, np.ndarray], same_machine: bool, tmp_path: Path
) -> None:
    found = answers(unpack(name, tmp_path / name / "checkpoint_last.pt"))
    wanted = {key.split("/")[1]: value for key, value in expected.items() if key.startswith(f"{name}/")}
    assert {*found, "resumed_log_p"} == wanted.keys()
    for key, value in found.items():
        assert value.dtype == wanted[key].dtype
        # The loss adds the words up in another order, and later versions the gates of an encoder's LSTM.
        if same_machine and key != "loss" and not name.startswith("lstm_nmt"):
            np.testing.assert_array_equal(value, wanted[key], err_msg=key)
        else:  # other kernels add up in another order, which moves the last bits of float32
            np.testing.assert_allclose(value, wanted[key], rtol=1e-6, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    "name", [name if name in RESUMES else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_an_old_checkpoint_is_trained_on(
    name: str, expected: dict[str, np.ndarray], same_machine: bool, train: InProcess, tmp_path: Path
) -> None:
    """With the state of its optimizer, which is kept by the parameters' order: mixed up, it would lead elsewhere."""
    path = unpack(name, tmp_path / name / "checkpoint_last.pt")
    data, *others = flags(name, RESUMED)
    text = train(FOLDER / data, *others, "--save-dir", path.parent)
    assert f"Loaded checkpoint {path} (epoch 1 @ {UPDATES} updates)" in text
    state = load_checkpoint_to_cpu(str(path))
    assert state["optimizer_history"][-1]["num_updates"] == RESUMED
    if same_machine or name not in RANDOM:
        found = answers(path)["log_p"]
        # Gradients may be added up in another order than in version 0.1.0, and Adam divides small ones by their size.
        np.testing.assert_allclose(found, expected[f"{name}/resumed_log_p"], rtol=1e-4, atol=1e-4)
