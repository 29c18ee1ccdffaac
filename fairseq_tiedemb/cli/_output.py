"""Output files and folders that are whole or absent."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def check_output(path: Path, *, flag: str, inputs: Iterable[Path] = ()) -> None:
    """Checks, before any work, that a file can be put there, and in the place of none that the command reads.

    Args:
        path: of the file.
        flag: that names it.
        inputs: what the command reads.

    Raises:
        ValueError: naming the flag, if there is no such folder or the system does not let it be written, the path is
            something else than a file, or one of the inputs.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{flag}: needs the name of a file; got {path}, which is none. Use another name.")
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise ValueError(f"{flag}: needs a name that is not among the inputs; got {path}. Use another.")
    _check_place(path, flag=flag)


def check_picture(path: Path, *, flag: str, inputs: Iterable[Path] = ()) -> str:
    """``check_output`` for a picture; returns its format.

    Raises:
        ValueError: also if the name does not end in a format that matplotlib writes.
    """
    from matplotlib.backend_bases import FigureCanvasBase

    check_output(path, flag=flag, inputs=inputs)
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
        ValueError: naming the flag, if there is no folder to make it in, the system does not let it be made, or the
            name is taken.
    """
    if os.path.lexists(path):
        raise ValueError(f"{flag}: needs the name of a new folder; got {path}, which is there. Use another name.")
    _check_place(path, flag=flag)


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Gives a path on the disk of `path` to write to, which takes its name at the end and is removed if anything fails.

    Raises:
        ValueError: naming the file and the cause, if the system does not write it, for want of space, say.
    """
    path = Path(os.path.realpath(path))  # a link is followed, not replaced
    try:
        with _aside(path) as aside:
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


def _check_place(path: Path, *, flag: str) -> None:
    """Checks that a name can be taken, by taking it for a moment where it is in nobody's way."""
    if not os.path.isdir(path.parent):
        raise ValueError(f"{flag}: needs a folder that exists; got {path.parent}. Use mkdir -p {path.parent}.")
    try:
        with _aside(Path(os.path.realpath(path))) as aside:
            aside.touch()
    except OSError as error:
        raise ValueError(
            f"{flag}: needs a name that the system lets be written; got {path} ({error.strerror}). Use another."
        ) from None


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Gives a path for `path` to be written to, on the same disk, and removes what is there in the end.

    It is in a folder of its own: two processes that write one file are not in each other's way, and the file gets the
    permissions that every new one has, where tempfile's files are for their owner alone.
    """
    # A name that is as long as a system lets it be leaves no room for more.
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent) as folder:
        yield Path(folder, path.name)


def _refusal_of_system(error: BaseException | None) -> OSError | None:
    """The system's error among those that an error comes from; torch replaces it by one of its own."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
