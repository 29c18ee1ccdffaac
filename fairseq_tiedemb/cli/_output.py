"""Writes output files and folders completely or not at all, and notes beside what a command prints."""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairseq_tiedemb.whole_files import replacing, system_error


def note(text: str) -> None:
    """Prints a line on standard error, after all that standard output has got: both may go to one file."""
    sys.stdout.flush()
    print(text, file=sys.stderr)


def check_output(path: Path, *, flag: str, inputs: Iterable[Path] = ()) -> None:
    """Checks before any work that a file can be written, and is not one of the command's `inputs`."""
    is_stream = os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/self/fd/"))  # which may be a file
    if is_stream or (os.path.exists(path) and not os.path.isfile(path)):
        raise ValueError(f"{flag}: needs the name of a file; got {path}, which is none. Use another name.")
    if os.path.realpath(path) in map(os.path.realpath, inputs):
        raise ValueError(f"{flag}: needs a name that is not among the inputs; got {path}. Use another.")
    _check_place(path, flag=flag)


def check_picture(path: Path, *, inputs: Iterable[Path]) -> str:
    """Does ``check_output`` for the picture of --output, and returns its format."""
    from matplotlib.backend_bases import FigureCanvasBase

    check_output(path, flag="--output", inputs=inputs)
    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    picture_format = path.suffix[1:].lower()
    if picture_format not in formats:
        needs = f"a name that ends in one of {', '.join('.' + name for name in formats)}"
        raise ValueError(f"--output: needs {needs}; got {path}. Use {path.stem}.png.")
    return picture_format


def check_output_folder(path: Path, *, flag: str) -> None:
    """Checks before any work that a new folder can be made."""
    if os.path.lexists(path):
        raise ValueError(f"{flag}: needs the name of a new folder; got {path}, which is there. Use another name.")
    _check_place(path, flag=flag)


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; the file or folder there is renamed to `path`, or removed after an error.

    ValueError, naming the file and the cause, if the system cannot write it, as on a full disk.
    """
    path = Path(os.path.realpath(path))  # a link is followed, not replaced
    try:
        with _aside(path) as aside, replacing(path, aside):
            yield aside
    except (OSError, RuntimeError) as error:
        cause = system_error(error)
        if cause is None:
            raise
        needs = "a disk that takes the whole file"
        got = f"an error of the system ({cause.strerror or cause}). Nothing of it is left"
        raise ValueError(f"{path}: needs {needs}; got {got}. Use another place, or make room.") from error


def save_aside(state: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint completely or not at all, with the errors of `written_aside`."""
    import torch  # takes a second, and only this function needs it

    # torch reports why it cannot write only if Python has opened the file.
    with written_aside(path) as aside, aside.open("wb") as file:
        torch.save(state, file)


def _check_place(path: Path, *, flag: str) -> None:
    """Checks that a file can be created, by creating a temporary one beside it."""
    if not os.path.isdir(path.parent):
        got, use = (", a file", "another folder") if path.parent.exists() else ("", f"mkdir -p {path.parent}")
        raise ValueError(f"{flag}: needs a folder that exists; got {path.parent}{got}. Use {use}.")
    try:
        with _aside(Path(os.path.realpath(path))) as aside:
            aside.touch()
    except OSError as error:
        needs = "a name that the system lets be written"
        raise ValueError(f"{flag}: needs {needs}; got {path} ({error.strerror}). Use another.") from None


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Yields a temporary path for `path`, on the same disk, and removes it at the end.

    It is in a folder of its own, so that two processes that write one file do not interfere, and the file gets the
    usual permissions: tempfile's files are for their owner alone.
    """
    # Cut, since the name may already have the maximum length.
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent) as folder:
        yield Path(folder, path.name)
