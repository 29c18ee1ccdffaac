"""Files that fairseq writes."""

from collections.abc import Callable
from typing import Any

from fairseq.file_io import PathManager

from ._replace import replace


def atomic_copies() -> None:
    """Write `checkpoint_last.pt` and `checkpoint_best.pt` aside, then rename.

    Without it: they are copied in place (checkpoint_utils.py:139, file_io.py:71), and a process killed meanwhile leaves
    half a file where the last good checkpoint was. Goes when PathManager.copy does this.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def copy(src_path: str, dst_path: str, overwrite: bool = False) -> Any:
            if not overwrite or not PathManager.supports_rename(dst_path):
                return original(src_path, dst_path, overwrite)
            done = original(src_path, dst_path + ".tmp", overwrite=True)
            if done:
                PathManager.rename(dst_path + ".tmp", dst_path)
            return done

        return copy

    replace(PathManager, "copy", make)
