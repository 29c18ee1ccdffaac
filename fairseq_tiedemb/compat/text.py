"""Text for fairseq: UTF-8, with or without a byte-order mark."""

import io
from collections.abc import Callable, Iterator
from typing import Any

from fairseq import binarizer, file_chunker_utils
from fairseq.data import dictionary

from ._replace import replace

BYTE_ORDER_MARK = "\ufeff"


def byte_order_marks() -> None:
    """Drop the byte-order mark at the beginning of a text.

    Without it: the mark silently becomes part of the first word: in fairseq-preprocess (file_chunker_utils.py:56), also
    if files are concatenated; in fairseq-interactive and other encoding of text (data/dictionary.py:306); and in a
    dict.txt that an editor saved (231). Goes when fairseq opens text as "utf-8-sig".
    """

    def lines(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(self: Any) -> Iterator[str]:
            for line in original(self):
                yield line.removeprefix(BYTE_ORDER_MARK)

        return __iter__

    def line(original: Callable[..., Any]) -> Callable[..., Any]:
        def encode_line(self: Any, line: str, *args: Any, **kwargs: Any) -> Any:
            return original(self, line.removeprefix(BYTE_ORDER_MARK), *args, **kwargs)

        return encode_line

    def entries(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_from_file(self: Any, f: Any) -> None:
            original(
                self, f if isinstance(f, str) else io.StringIO("".join(f.readlines()).removeprefix(BYTE_ORDER_MARK))
            )

        return add_from_file

    replace(file_chunker_utils.ChunkLineIterator, "__iter__", lines)
    replace(dictionary.Dictionary, "encode_line", line)
    replace(dictionary.Dictionary, "add_from_file", entries)


def utf8_text() -> None:
    """Refuse text in another encoding in fairseq-preprocess, naming file and line.

    Without it: Latin-1 ends in `negative seek position -1` or in a UnicodeDecodeError without a file name, with
    `--workers` after a search byte by byte back to the beginning of the file (file_chunker_utils.py:10). The check
    reads the file once more, which costs little beside counting its words. Goes when fairseq names the file.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def find_offsets(filename: str, num_chunks: int) -> list[int]:
            require_utf8(filename)
            return original(filename, num_chunks)

        return find_offsets

    for module in (binarizer, dictionary):
        replace(module, "find_offsets", make)


def require_utf8(path: str) -> None:
    """Raise ValueError with the first line of a file that is not UTF-8."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"--trainpref, --validpref, --testpref: need UTF-8 text; got {path}, whose line {number} has the "
                    f"byte {line[error.start]:#04x} ({error.reason}). Use `iconv -f LATIN1 -t UTF-8` on it, say."
                ) from None
