"""Output files that are whole or absent."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_output(path: Path, *, flag: str) -> None:
    """Checks, before any work, that a file can be put there.

    Raises:
        ValueError: naming the flag, if there is no such folder or the path is something else than a file.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{flag}: needs a folder that exists; got {path.parent}. Use mkdir -p {path.parent}.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{flag}: needs the name of a file; got {path}, which is none. Use another name.")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, which takes its name at the end and is removed if anything fails."""
    path = path.resolve()  # a link is followed, not replaced
    aside = path.with_name(f".{path.name}.part")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
