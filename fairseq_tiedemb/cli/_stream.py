"""The binarised text that a command is given."""

from pathlib import Path
from typing import Any

# Of an index: magic, version, type and number of sentences; then the length of each, and where it begins.
HEADER, BYTES_EACH = 9 + 8 + 1 + 8, 4 + 8


def files_of(data: Path, subset: str) -> list[Path]:
    """What is read of the folder, which no output may replace."""
    return [data / "dict.txt", *(data / f"{subset}.{ending}" for ending in ("bin", "idx"))]


def read_dictionary(data: Path) -> Any:
    """fairseq's dictionary of a folder of fairseq-preprocess --only-source.

    Raises:
        ValueError: if the folder has none, or one that is not fairseq's.
    """
    from fairseq.data import Dictionary  # which takes seconds, as do the others

    path = data / "dict.txt"
    if not path.is_file():
        raise ValueError(f"DATA: needs a file; got {path}, which is none. Use another path.")
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # each fault has a class of its own, down to Exception itself
        raise ValueError(
            f"DATA: needs the dictionary of fairseq-preprocess; got {path} ({error}). Use the one that it wrote."
        ) from error


def read_stream(data: Path, subset: str, dictionary: Any, *, flag: str = "--train-subset") -> Any:
    """One split of its text as a ``TokenStream``.

    Raises:
        ValueError: if there is no such text, or it is not whole.
    """
    from fairseq_tiedemb.tasks._streams import open_stream

    path = data / subset
    _check_index(Path(f"{path}.idx"))
    try:
        return open_stream(str(path), dictionary)
    except FileNotFoundError:
        raise ValueError(
            f"{flag}: needs a text of {data}; got {path}, without .bin and .idx. Use train or test, say."
        ) from None


def _check_index(path: Path) -> None:
    """Checks that an index has a length for each sentence.

    fairseq does not: numpy then names no file, and what was opened prints a traceback of its own in the end.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    magic = MMapIndexedDataset.Index._HDR_MAGIC
    if not path.is_file():
        return
    with path.open("rb") as file:
        header = file.read(HEADER)
    if not magic.startswith(header[: len(magic)]):  # another of fairseq's formats
        return
    size, needed = path.stat().st_size, HEADER + BYTES_EACH * int.from_bytes(header[-8:], "little")
    if size < needed or len(header) < HEADER:
        raise ValueError(
            f"DATA: needs files as fairseq-preprocess wrote them; got {path} with {size:,} bytes of "
            f"{needed if len(header) == HEADER else HEADER:,}. Use whole ones."
        )
