"""What a terminal gets: printable text, and a refusal without Python's traceback."""

import os
import re
from typing import Any, TextIO

# A variable of the environment: any value but an empty one brings the tracebacks of refusals back.
DEBUG = "FAIRSEQ_TIEDEMB_DEBUG"

# Control characters but tab and line feed; separators of lines; overrides of the direction of writing; halves of
# characters, by which Python spells the bytes of a file's name that are no UTF-8.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with the characters that steer a terminal as Python escapes them; all other characters stay."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def error_line(program: str, message: str) -> str:
    """A refusal as argparse writes one: `program: error: message`, in one line."""
    return printable(f"{program}: error: {message}".replace("\n", " "))


def debugging() -> bool:
    """Whether the tracebacks of refusals are to be shown."""
    return bool(os.environ.get(DEBUG))


class PrintableStream:
    """A stream that writes printable text to another."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Writes the text, made printable; characters that the stream's encoding lacks are escaped, too."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        return self.stream.write(printable(text).encode(encoding, "backslashreplace").decode(encoding))
