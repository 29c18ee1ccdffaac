"""Output files and folders that are whole or absent."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def check_output(path: Path, *, flag: str) -> None:
    """Checks, before any work, that a file can be put there.

    Raises:
        ValueError: naming the flag, if there is no such folder or the path is something else than a file.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{flag}: needs a folder that exists; got {path.parent}. Use mkdir -p {path.parent}.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{flag}: needs the name of a file; got {path}, which is none. Use another name.")


def check_picture(path: Path, *, flag: str) -> str:
    """``check_output`` for a picture; returns its format.

    Raises:
        ValueError: also if the name does not end in a format that matplotlib writes.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    check_output(path, flag=flag)
    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    picture_format = path.suffix[1:].lower()
    if picture_format not in formats:
        raise ValueError(
            f"{flag}: needs a name that ends in one of {', '.join('.' + name for name in formats)}; got "
            f"{path}. Use {path.stem}.png."
        )
    return picture_format


def check_output_folder(path: Path, *, flag: str) -> None:
    """Checks, before any work, that a folder can be made there.

    Raises:
        ValueError: naming the flag, if there is no folder to make it in or the name is taken.
    """
    if not path.parent.is_dir():
        raise ValueError(f"{flag}: needs a folder that exists; got {path.parent}. Use mkdir -p {path.parent}.")
    if path.exists() or path.is_symlink():
        raise ValueError(f"{flag}: needs the name of a new folder; got {path}, which is there. Use another name.")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Gives a path beside `path` to write to, which takes its name at the end and is removed if anything fails.

    Raises:
        ValueError: naming the file and the cause, if the system does not write it, for want of space, say.
    """
    path = path.resolve()  # a link is followed, not replaced
    aside = path.with_name(f".{path.name}.part")
    try:
        _remove(aside)  # of a process that was killed
        yield aside
        aside.replace(path)
    except (OSError, RuntimeError) as error:
        cause = _refusal_of_system(error)
        if cause is None:
            raise
        raise ValueError(
            f"{path}: needs a disk that takes the whole file; got an error of the system ({cause.strerror or cause}). "
            "Nothing of it is left. Use another place, or make room."
        ) from error
    finally:
        _remove(aside)


@contextmanager
def folder_aside(path: Path) -> Iterator[Path]:
    """`written_aside` for a new folder, which is empty at first.

    Raises:
        ValueError: as `written_aside`.
    """
    with written_aside(path) as aside:
        aside.mkdir()
        yield aside


def save_aside(state: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint, whole or not at all.

    Raises:
        ValueError: as `written_aside`.
    """
    import torch  # which takes a second, for no other command to wait for

    # torch tells why it could not write only where Python has opened the file.
    with written_aside(path) as aside, aside.open("wb") as file:
        torch.save(state, file)


def _remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _refusal_of_system(error: BaseException | None) -> OSError | None:
    """The system's error among those that an error comes from; torch replaces it by one of its own."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
