"""Files that fairseq writes: whole, or not at all."""

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

# fairseq's: a disk may be full for a moment.
TRIES = 3
PAUSE_SECONDS = 2.5


def whole_checkpoints() -> None:
    """Write a checkpoint aside, onto the disk, then rename; each try begins anew, and the last one's failure is raised.

    Without it: all tries go into one handle, the second behind what the first has written (checkpoint_utils.py:609). A
    disk that is full for a moment so puts a file that nothing can read in the place of the last good checkpoint, and
    training goes on and exits with 0. Where all tries fail, half a `.pt.tmp` stays, and nothing names the file.
    `--write-checkpoints-asynchronously` stays as it is: iopath writes in the background, in place. Goes when
    `_torch_persistent_save` begins each try with an empty file.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def torch_persistent_save(obj: Any, filename: str, async_write: bool = False) -> Any:
            if async_write or not PathManager.supports_rename(filename):
                return original(obj, filename, async_write)

            def write(aside: str) -> bool:
                with open(aside, "wb") as file:  # torch's own file gives no reason when the disk is full
                    torch.save(obj, file)
                return True

            put(filename, write)

        return torch_persistent_save

    replace(checkpoint_utils, "torch_persistent_save", make)


def atomic_copies() -> None:
    """Write `checkpoint_last.pt` and `checkpoint_best.pt` aside, then rename; try again like `whole_checkpoints`.

    Without it: they are copied in place (checkpoint_utils.py:139, file_io.py:71), and a process killed meanwhile, or a
    full disk, leaves half a file where the last good checkpoint was. Goes when PathManager.copy does this.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite)
            return put(dst_path, lambda aside: original(src_path, aside, overwrite=True))

        return copy

    replace(PathManager, "copy", make)


def recipes_save_in_mid_epoch() -> None:
    """Write `checkpoint_last.pt` in mid-epoch as often as a preset's recipe says, and do nothing else then.

    Without it: a training that is interrupted in its first epoch begins anew, or `--save-interval-updates` validates
    each time too, which chooses another `checkpoint_best.pt` and counts for `--patience` (fairseq_cli/train.py:420),
    and adds files. With another number than the recipe's that flag is fairseq's, and with recipes that yield to an
    optimiser; 0 saves by epochs alone. Goes when fairseq saves without validating.
    """

    def make_init(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, cfg: Any, task: Any, model: Any, *args: Any, **kwargs: Any) -> None:
            original(self, cfg, task, model, *args, **kwargs)
            # A recipe that yields leaves the flag to commands that had it before the recipe.
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
    """Make a file, whole and on the disk, or leave what was there.

    Args:
        path: its name.
        write: writes a file of the name that it is given, which is in the same folder; false if it has not.

    Returns:
        whether it was written.

    Raises:
        OSError: naming the file and the cause, if the system has refused it `TRIES` times.
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
                    f"{path}: needs to be written whole; got {reason.strerror or reason} in each of {TRIES} tries. "
                    "What was there is as it was. Use a --save-dir with more room, or fewer files "
                    "(--keep-last-epochs 1, --no-epoch-checkpoints); the same command then goes on from the last "
                    "checkpoint."
                ) from error
            logger.warning(f"{path}: {reason.strerror or reason}; trying again in {PAUSE_SECONDS} seconds")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(aside)
        time.sleep(PAUSE_SECONDS)
    raise AssertionError  # the last try returns or raises


def _reason(error: BaseException | None) -> OSError | None:
    """What the system said. torch's writer reports a full disk as an error of its own, raised while handling it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
