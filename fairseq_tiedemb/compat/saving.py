"""fairseq writes files whole, or not at all."""

import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.trainer import Trainer

from ._replace import replace

logger = logging.getLogger(__name__)

# fairseq's numbers: a disk may be full for a moment.
TRIES = 3
PAUSE_SECONDS = 2.5


def whole_checkpoints() -> None:
    """Write a checkpoint to a temporary file, sync it, and rename it; retries start anew, and the last error is raised.

    Without it: all tries write to one handle, the second behind the first one's bytes (checkpoint_utils.py:609). If the
    disk is full for a moment, an unreadable file replaces the last good checkpoint, and training goes on and exits with
    0. If all tries fail, half a `.pt.tmp` stays. `--write-checkpoints-asynchronously` is not changed: iopath writes in
    the background, in place. Goes when `_torch_persistent_save` starts every try with an empty file.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> Any:
            if async_write or not PathManager.supports_rename(filename):
                return original(obj, filename, async_write)

            def write(aside: str) -> bool:
                with open(aside, "wb") as file:  # torch's own writer does not say that the disk is full
                    torch.save(obj, file)
                return True

            put(filename, write)

        return torch_persistent_save

    replace(checkpoint_utils, "torch_persistent_save", make)


def atomic_copies() -> None:
    """Write `checkpoint_last.pt` and `checkpoint_best.pt` to a temporary file, then rename, with retries.

    Without it: they are copied in place (checkpoint_utils.py:139, file_io.py:71); a killed process or a full disk
    leaves half a file instead of the last good checkpoint. Goes when PathManager.copy does this.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite)
            return put(dst_path, lambda aside: original(src_path, aside, overwrite=True))

        return copy

    replace(PathManager, "copy", make)


def recipes_save_in_mid_epoch() -> None:
    """Write `checkpoint_last.pt` in mid-epoch at the interval of a preset's recipe, without validation.

    Without it: a training interrupted in its first epoch starts anew, or `--save-interval-updates` also validates,
    which changes `checkpoint_best.pt`, counts for `--patience` (fairseq_cli/train.py:420) and adds files. The flag is
    fairseq's own if it differs from the recipe's number, or if the recipe yields to `--optimizer`; 0 saves at ends of
    epochs alone. Goes when fairseq saves without validating.
    """

    def make_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
            original(self, cfg, task, model, *args, **kwargs)
            # With a recipe that yields, the flag keeps fairseq's meaning in commands older than the recipe.
            recipe = {} if getattr(model, "recipe_yields", False) else getattr(model, "recipe", {})
            every = recipe.get("save_interval_updates", 0)
            self._saves_last_every = every if every == cfg.checkpoint.save_interval_updates else 0
            if self._saves_last_every:
                cfg.checkpoint.save_interval_updates = 0

        return init

    def make_iterator(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_train_iterator(self: Any, *args: Any, **kwargs: Any) -> Any:
            self._batches_of_epoch = original(self, *args, **kwargs)
            return self._batches_of_epoch

        return get_train_iterator

    def make_step(original: Callable[..., Any]) -> Callable[..., Any]:
        def train_step(self: Any, *args: Any, **kwargs: Any) -> Any:
            logged = original(self, *args, **kwargs)
            updated = self._saves_last_every and logged is not None  # no overflow
            if updated and self.get_num_updates() % self._saves_last_every == 0:
                if not self._batches_of_epoch.end_of_epoch():
                    checkpoint_utils.save_checkpoint(self.cfg.checkpoint, self, self._batches_of_epoch, None)
            return logged

        return train_step

    replace(Trainer, "__init__", make_init)
    replace(Trainer, "get_train_iterator", make_iterator)
    replace(Trainer, "train_step", make_step)


def put(path: str, write: Callable[[str], Any]) -> bool:
    """Write a file, whole and synced to disk, or leave the old file.

    Args:
        path: the file.
        write: writes the given path, a file in the same folder; returns False if it wrote nothing.

    Returns:
        whether the file was written.

    Raises:
        OSError: naming the file and the cause, after `TRIES` failures.
    """
    aside = path + ".tmp"
    for left in reversed(range(TRIES)):
        try:
            if not write(aside):
                return False
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
            return True
        except Exception as error:
            reason = _reason(error)
            if reason is None:
                raise
            if not left:
                raise OSError(
                    f"{path}: needs to be written whole; got {reason.strerror or reason} in {TRIES} tries. The "
                    "old file is unchanged. Use a --save-dir with more room, or fewer files "
                    "(--keep-last-epochs 1, --no-epoch-checkpoints); the same command then goes on from the last "
                    "checkpoint."
                ) from error
            logger.warning(f"{path}: {reason.strerror or reason}; trying again in {PAUSE_SECONDS} seconds")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(aside)
        time.sleep(PAUSE_SECONDS)
    raise AssertionError  # unreachable: the last try returns or raises


def _reason(error: BaseException | None) -> OSError | None:
    """Return the system's error. torch's writer raises its own for a full disk, while handling the system's."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
