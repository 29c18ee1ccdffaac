"""Checkpoints on a disk that is full: whole or not there, and training says so."""

import errno
import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils, utils
from fairseq.file_io import PathManager

from fairseq_tiedemb.compat import saving

from .conftest import InProcess
from .test_compat_commands import TRANSLATION

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "PAUSE_SECONDS", 0)


def full_disk(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch write 9 bytes and then find the disk full, so many times."""
    save, failures = torch.save, [FULL] * times

    def write(state: Any, file: Any) -> None:
        if not failures:
            return save(state, file)
        file.write(b"some data")
        try:
            raise failures.pop()
        finally:  # as torch's writer does, which then lacks bytes
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")

    monkeypatch.setattr(torch, "save", write)


def test_a_disk_that_is_full_for_a_moment_costs_a_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint_last.pt"
    path.write_text("old checkpoint")
    full_disk(1, monkeypatch)
    checkpoint_utils.torch_persistent_save({"epoch": 2}, str(path))
    assert torch.load(path, weights_only=True) == {"epoch": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_checkpoint_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint_last.pt"
    path.write_text("old checkpoint")
    full_disk(3, monkeypatch)
    with pytest.raises(OSError, match=r"checkpoint_last\.pt: needs to be written whole; got No space left .* 3 tries"):
        checkpoint_utils.torch_persistent_save({"epoch": 2}, str(path))
    assert path.read_text() == "old checkpoint"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_saved_is_no_fault_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises((AttributeError, TypeError), match="lambda|pickle"):
        checkpoint_utils.torch_persistent_save({"function": lambda: 0}, str(tmp_path / "checkpoint_last.pt"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("cause", "message"),
    [(FULL, r"checkpoint_last\.pt: needs .* got No space left on device"), (KeyboardInterrupt(), "")],
    ids=["full", "killed"],
)
def test_a_copy_that_is_cut_short_leaves_the_old_checkpoint(
    cause: BaseException, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, last = tmp_path / "checkpoint2.pt", tmp_path / "checkpoint_last.pt"
    new.write_text("new checkpoint")
    last.write_text("old checkpoint")

    def copy(source: str, destination: str) -> None:
        Path(destination).write_text("new ch")
        raise cause

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", copy)
        with pytest.raises(type(cause), match=message):
            PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_text() == "old checkpoint"
    assert sorted(tmp_path.iterdir()) == [new, last]
    assert PathManager.copy(str(new), str(last), overwrite=True)
    assert last.read_text() == "new checkpoint"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_that_is_shared_is_copied_once(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a GPU, where `cpu` makes a new tensor."""
    monkeypatch.setattr(torch.Tensor, "cpu", torch.Tensor.clone)
    table = torch.arange(9).to(dtype).view(3, 3)
    given = {"a": table, "b": {"c": table.detach(), "t": table.t(), "row": table[0]}, "n": 1, "empty": [table[:0]] * 2}
    found = utils.move_to_cpu(given)
    assert found["a"] is found["b"]["c"]
    assert len({id(each) for each in (found["a"], found["b"]["t"], found["b"]["row"])}) == 3
    for ours, theirs in ((found["a"], table), (found["b"]["t"], table.t()), (found["b"]["row"], table[0])):
        torch.testing.assert_close(ours, theirs.float(), rtol=0, atol=0)
    sparse, complex_ = torch.eye(2).to_sparse(), torch.tensor([1 + 2j])
    others = utils.move_to_cpu([sparse, complex_, complex_.conj()])
    for ours, theirs in zip(others, (sparse, complex_, complex_.conj()), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert found["n"] == 1
    assert [each.shape for each in found["empty"]] == [(0, 3)] * 2


def test_training_on_a_full_disk_stops_and_names_the_file(
    train: InProcess, parallel_data: Path, tmp_path: Path
) -> None:
    flags = (*TRANSLATION, "--batch-size", 20, "--save-dir", tmp_path, "--no-epoch-checkpoints")
    train(parallel_data, *flags, "--max-epoch", 1)
    last = tmp_path / "checkpoint_last.pt"
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before[last]) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"checkpoint_best\.pt: needs to be written whole; got File too large"):
            train(parallel_data, *flags, "--max-epoch", 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_writing_in_the_background_is_left_to_iopath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def opena(path: str, mode: str) -> Any:
        opened.append(path)
        return open(path, mode)

    monkeypatch.setattr(PathManager, "opena", opena)
    path = tmp_path / "checkpoint_last.pt"
    checkpoint_utils.torch_persistent_save({"epoch": 2}, str(path), async_write=True)
    assert opened == [str(path)]
    assert torch.load(path, weights_only=True) == {"epoch": 2}
