"""Reads the binarized text of a command."""

from pathlib import Path
from typing import Any

# Bytes of an index: magic, version, type and number of sentences; then lengths and positions of the sentences.
HEADER, BYTES_EACH = 9 + 8 + 1 + 8, 4 + 8


def files_of(data: Path, subset: str) -> list[Path]:
    """Returns the files that the command reads, which no output may replace."""
    return [data / "dict.txt", *(data / f"{subset}.{ending}" for ending in ("bin", "idx"))]


def read_dictionary(data: Path) -> Any:
    """Returns fairseq's dictionary of a folder of fairseq-preprocess --only-source.

    Raises:
        ValueError: if the folder has no dict.txt of fairseq.
    """
    from fairseq.data import Dictionary  # fairseq's imports take seconds

    import fairseq_tiedemb.compat  # noqa: F401 (mends it)

    path = data / "dict.txt"
    if not path.is_file():
        raise ValueError(f"DATA: needs a file; got {path}, which is none. Use another path.")
    try:
        return Dictionary.load(str(path))
    except Exception as error:  # fairseq raises many classes, including Exception itself
        raise ValueError(
            f"DATA: needs the dictionary of fairseq-preprocess; got {path} ({error}). Use the one that it wrote."
        ) from error


def read_stream(data: Path, subset: str, dictionary: Any, *, flag: str = "--train-subset") -> Any:
    """Returns a split of the text as a ``TokenStream``.

    Raises:
        ValueError: if the text is missing or incomplete.
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
    """Checks that an index has the lengths of all sentences.

    fairseq does not check: numpy then names no file, and a traceback follows at exit.
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
