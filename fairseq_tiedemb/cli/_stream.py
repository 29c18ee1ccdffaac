"""The binarized text that a command reads."""

import argparse
from pathlib import Path
from typing import Any

from fairseq_tiedemb.cli._output import check_output

# Bytes of an index: magic, version, type and number of sentences; then lengths and positions of the sentences.
HEADER, BYTES_EACH = 9 + 8 + 1 + 8, 4 + 8


def add_text(parser: argparse.ArgumentParser, about: str = "the text") -> None:
    """Adds the folder and the split."""
    parser.add_argument("data", type=Path, metavar="DATA", help="folder of fairseq-preprocess --only-source")
    parser.add_argument("--train-subset", default="train", metavar="NAME", help=f"{about} (default: train)")


def read_text(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Checks --output, and returns the dictionary and the text, a ``TokenStream``."""
    from fairseq_tiedemb.loading import load_dictionary

    data, subset = arguments.data, arguments.train_subset
    inputs = [data / name for name in ("dict.txt", f"{subset}.bin", f"{subset}.idx")]
    check_output(arguments.output, flag="--output", inputs=inputs)
    dictionary = load_dictionary(data / "dict.txt", flag="DATA")
    return dictionary, read_stream(data, subset, dictionary)


def read_stream(data: Path, subset: str, dictionary: Any, *, flag: str = "--train-subset") -> Any:
    """Returns a split of the text as a ``TokenStream``."""
    from fairseq_tiedemb.tasks._streams import open_stream

    path = data / subset
    try:
        _check_index(Path(f"{path}.idx"))
        return open_stream(str(path), dictionary)
    except FileNotFoundError:
        use = "one that fairseq-preprocess wrote, as train or test"
        raise ValueError(f"{flag}: needs a text of {data}; got {path}, without .bin or .idx. Use {use}.") from None


def _check_index(path: Path) -> None:
    """Checks that an index has the lengths of all sentences: numpy would name no file."""
    from fairseq.data.indexed_dataset import IndexedDataset, MMapIndexedDataset, _code_to_dtype

    with path.open("rb") as file:
        header = file.read(HEADER)
    if header.startswith(IndexedDataset._HDR_MAGIC):  # another of fairseq's formats
        return
    size, needed = path.stat().st_size, HEADER + BYTES_EACH * int.from_bytes(header[18:], "little")
    kinds = {MMapIndexedDataset.Index._HDR_MAGIC + (1).to_bytes(8, "little") + bytes([code]) for code in _code_to_dtype}
    if size < needed or header[:18] not in kinds:
        got = f"{size:,} bytes, of {needed:,} by its header"
        raise ValueError(f"{path}: needs to be as fairseq-preprocess wrote it; got {got}. Use a whole one.")
