"""The binarised text that a command is given."""

from pathlib import Path
from typing import Any


def files_of(data: Path, subset: str) -> list[Path]:
    """What is read of the folder, which no output may replace."""
    return [data / "dict.txt", *(data / f"{subset}.{ending}" for ending in ("bin", "idx"))]


def read_dictionary(data: Path) -> Any:
    """fairseq's dictionary of a folder of fairseq-preprocess --only-source.

    Raises:
        ValueError: if the folder has none.
    """
    from fairseq.data import Dictionary  # which takes seconds, as do the others

    path = data / "dict.txt"
    if not path.is_file():
        raise ValueError(f"DATA: needs a file; got {path}, which is none. Use another path.")
    return Dictionary.load(str(path))


def read_stream(data: Path, subset: str, dictionary: Any, *, flag: str = "--train-subset") -> Any:
    """One split of its text as a ``TokenStream``.

    Raises:
        ValueError: if there is no such text.
    """
    from fairseq_tiedemb.tasks._streams import open_stream

    path = data / subset
    try:
        return open_stream(str(path), dictionary)
    except FileNotFoundError:
        raise ValueError(
            f"{flag}: needs a text of {data}; got {path}, without .bin and .idx. Use train or test, say."
        ) from None
