"""Text for fairseq: UTF-8, with or without a byte-order mark."""

import io
from collections.abc import Iterator
from typing import Any

from fairseq import binarizer, file_chunker_utils
from fairseq.data import dictionary

from ..wrapping import wrap
from .mending import mend, mend_now

BYTE_ORDER_MARK = "\ufeff"


@mend_now
def byte_order_marks() -> None:
    """Drop the byte-order mark at the beginning of a text.

    Without it: the mark silently becomes part of the first word: in fairseq-preprocess (file_chunker_utils.py:65), also
    if files are concatenated; in fairseq-interactive and other encoding of text (data/dictionary.py:306); and in a
    dict.txt that an editor saved (231). Goes when fairseq opens text as "utf-8-sig".
    """

    @wrap(file_chunker_utils.ChunkLineIterator, "__iter__")
    def __iter__(original: Any, self: Any) -> Iterator[str]:
        for line in original(self):
            yield line.removeprefix(BYTE_ORDER_MARK)

    @wrap(dictionary.Dictionary, "encode_line")
    def encode_line(original: Any, self: Any, line: str, *args: Any, **kwargs: Any) -> Any:
        return original(self, line.removeprefix(BYTE_ORDER_MARK), *args, **kwargs)

    @wrap(dictionary.Dictionary, "add_from_file")
    def add_from_file(original: Any, self: Any, f: Any) -> None:
        original(self, f if isinstance(f, str) else io.StringIO("".join(f.readlines()).removeprefix(BYTE_ORDER_MARK)))


@mend(binarizer, "find_offsets")
@mend(dictionary, "find_offsets")
def utf8_text(original: Any, filename: str, num_chunks: int) -> list[int]:
    """Refuse text in another encoding in fairseq-preprocess, naming file and line.

    Without it: Latin-1 ends in `negative seek position -1` or in a UnicodeDecodeError without a file name, with
    `--workers` after a search byte by byte back to the beginning of the file (file_chunker_utils.py:10). The check
    reads the file once more, which costs little beside counting its words. Goes when fairseq names the file.
    """
    with open(filename, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                flags, use = "--trainpref, --validpref, --testpref", "`iconv -f LATIN1 -t UTF-8` on it, say"
                got = f"{filename}, whose line {number} has the byte {line[error.start]:#04x} ({error.reason})"
                raise ValueError(f"{flags}: need UTF-8 text; got {got}. Use {use}.") from None
    return original(filename, num_chunks)
