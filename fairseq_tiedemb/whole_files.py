"""Files that are written completely or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, aside: Path) -> Iterator[Path]:
    """Yields ``aside``, a path on the same disk; what is written there is synced and takes the place of ``path``.

    After an error, and if nothing was written, the old file stays and nothing is left of the new one.
    """
    try:
        yield aside
        if aside.is_file():
            with aside.open("rb+") as file:
                os.fsync(file.fileno())
        if aside.exists():
            aside.replace(path)
    finally:
        if aside.is_file():
            aside.unlink()


def system_error(error: BaseException | None) -> OSError | None:
    """The system's error in a chain of errors: for a full disk, torch raises one of its own while handling it."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
