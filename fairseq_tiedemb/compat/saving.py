"""fairseq writes files whole, or not at all, a tied table once, and every line of a log once."""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, utils
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar

from ..whole_files import replacing, system_error
from .mending import mend

logger = logging.getLogger(__name__)

# fairseq's numbers: a disk may be full for a moment.
TRIES = 3
PAUSE_SECONDS = 2.5


@mend(checkpoint_utils, "torch_persistent_save")
def whole_checkpoints(original: Any, obj: Any, filename: str, async_write: bool = False) -> Any:
    """Write a checkpoint to a temporary file, sync it, and rename it; retries start anew, and the last error is raised.

    Without it: all tries write to one handle, the second behind the first one's bytes (checkpoint_utils.py:602). If the
    disk is full for a moment, an unreadable file replaces the last good checkpoint, and training goes on and exits with
    0. If all tries fail, half a `.pt.tmp` stays. `--write-checkpoints-asynchronously` is not changed: iopath writes in
    the background, in place. Goes when `_torch_persistent_save` starts every try with an empty file.
    """
    if async_write or not PathManager.supports_rename(filename):
        return original(obj, filename, async_write)

    def write(aside: str) -> None:
        with open(aside, "wb") as file:  # torch's own writer does not say that the disk is full
            torch.save(obj, file)

    put(filename, write)


@mend(utils, "move_to_cpu")
def shared_tensors_stay_shared(original: Any, sample: Any) -> Any:
    """Copy tensors that are the same memory once, so that a checkpoint holds a tied table once.

    Without it: in checkpoints of a GPU, of `--bf16` and of `--fp16` each name has a table of its own (utils.py:118),
    which with three-way tying is three tables. Goes when `move_to_cpu` does this.
    """
    copies: dict[Any, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
            return original([tensor])[0]
        memory = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.size(), tensor.stride())
        if memory not in copies:
            copies[memory] = original([tensor])[0]
        return copies[memory]

    return utils.apply_to_sample(once, sample)


@mend(PathManager, "copy")
def atomic_copies(original: Any, src_path: str, dst_path: str, overwrite: bool = False) -> Any:
    """Write `checkpoint_last.pt` and `checkpoint_best.pt` to a temporary file, then rename, with retries.

    Without it: they are copied in place (checkpoint_utils.py:139, file_io.py:71); a killed process or a full disk
    leaves half a file instead of the last good checkpoint. Goes when PathManager.copy does this.
    """
    if not overwrite or not PathManager.supports_rename(dst_path):
        return original(src_path, dst_path, overwrite)
    return put(dst_path, lambda aside: original(src_path, aside, overwrite=True))


def put(path: str, write: Callable[[str], Any]) -> Any:
    """Write a file, whole and synced to disk, or leave the old file; return what `write` returns.

    `write` is given the path of a file beside it. After `TRIES` failures OSError names the file and the cause.
    """
    for left in reversed(range(TRIES)):
        try:
            with replacing(Path(path), Path(path + ".tmp")) as aside:
                return write(str(aside))
        except Exception as error:
            reason = system_error(error)
            if reason is None:
                raise
            if not left:
                got = f"{reason.strerror or reason} in {TRIES} tries. The old file is unchanged"
                use = "a --save-dir with more room, or fewer files (--keep-last-epochs 1, --no-epoch-checkpoints); "
                use += "the same command then goes on from the last checkpoint"
                raise OSError(f"{path}: needs to be written whole; got {got}. Use {use}.") from error
            logger.warning(f"{path}: {reason.strerror or reason}; trying again in {PAUSE_SECONDS} seconds")
        time.sleep(PAUSE_SECONDS)


@mend(checkpoint_utils, "verify_checkpoint_directory")
def folders_that_can_be_written(original: Any, save_dir: str) -> None:
    """Name `--save-dir` where its folder cannot be made or written.

    Without it: an OSError about a file `dummy` (checkpoint_utils.py:872). Goes when fairseq names the flag.
    """
    try:
        original(save_dir)
    except OSError as error:
        needs = "a folder that can be written"
        raise ValueError(f"--save-dir: needs {needs}; got {save_dir} ({error.strerror}). Use another.") from None


@mend(progress_bar, "progress_bar")
def lines_of_a_log_once(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Write every progress line to `--log-file` once.

    Without it: every epoch opens the file again (logging/progress_bar.py:46), so that lines of the tenth epoch are
    written ten times, and a long training runs out of file handles. Goes when fairseq closes the file.
    """
    path = os.path.abspath(kwargs.get("log_file") or "")
    for handler in list(progress_bar.logger.handlers):
        if isinstance(handler, logging.FileHandler) and handler.baseFilename == path:
            progress_bar.logger.removeHandler(handler)
            handler.close()
    return original(*args, **kwargs)
