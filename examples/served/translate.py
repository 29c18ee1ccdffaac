"""Translates sentences with an exported model, from standard input or over HTTP; fairseq is not needed.

python examples/served/translate.py MODEL CODES < text.en > text.de
python examples/served/translate.py MODEL CODES --port 8000 &
curl --data "one thousand and one" localhost:8000
"""

import argparse
import io
import json
import sys
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ctranslate2
from subword_nmt.apply_bpe import BPE

LONGEST = 1_000_000  # bytes of a request


class TooLong(ValueError):
    """A line is longer than the model's maximum length."""


def refuse(message: str) -> None:
    """Raises TooLong with the ``Translator``'s report."""
    raise TooLong(message)


def lines_of(file: Iterable[str]) -> list[str]:
    """Returns lines without their ends, split as Python splits a file: not at every line break of Unicode."""
    return [line.rstrip("\n") for line in file]


class Translator:
    """A CTranslate2 model with the subword segmentation of its training.

    Args:
        model: folder written by ``fairseq-tiedemb export --to ctranslate2``.
        codes: subword merges, written by ``subword-nmt learn-bpe``.

    Raises:
        ValueError: if config.json lacks the maximum sentence length, which the engine itself does not record.
    """

    def __init__(self, model: Path, codes: Path):
        self.engine = ctranslate2.Translator(str(model))
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        if "max_source_positions" not in config:
            raise ValueError(f"MODEL: needs max_source_positions in config.json; got {model}. Use the export again.")
        # The end of the sentence takes one position.
        self.longest, self.longest_translation = (config[f"max_{side}_positions"] - 1 for side in ("source", "target"))
        with codes.open(encoding="utf-8") as file:
            self.subwords = BPE(file)

    def __call__(self, sentences: Iterable[str], report: Callable[[str], None] = refuse) -> list[str]:
        """Returns the best translations by beam search with 5 hypotheses; an empty sentence gives an empty translation.

        Args:
            sentences: sentences of any length. The engine's own limits of 1,024 input and 256 output subwords would cut
                silently.
            report: called with a message about every sentence beyond the model's maximum, whose translation is empty.
        """
        texts = [self.subwords.segment(sentence).split() for sentence in sentences]
        for number, text in enumerate(texts, start=1):
            if len(text) > self.longest:
                report(f"line {number}: needs at most {self.longest:,} subwords; got {len(text):,}. Use shorter ones.")
                text.clear()
        results = self.engine.translate_batch(
            texts, beam_size=5, max_batch_size=32, max_input_length=0, max_decoding_length=self.longest_translation
        )
        # A translation that the length limit cuts off may end in "@@".
        return [f"{' '.join(result.hypotheses[0])} ".replace("@@ ", "").rstrip() for result in results]


def server(translator: Translator, port: int) -> ThreadingHTTPServer:
    """Returns an HTTP server for this machine alone: POST lines of text, and receive their translations.

    Requests run in parallel. Port 0 selects a free port.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = self.headers.get("Content-Length")
            if given is None:
                return self.send_error(411, "needs Content-Length; got none")
            if not (given.isascii() and given.isdigit()):
                return self.send_error(400, f"needs a number for Content-Length; got {given}")
            length = int(given)
            if length > LONGEST:
                return self.send_error(413, f"needs at most {LONGEST:,} bytes; got {length:,}")
            try:
                text = self.rfile.read(length).decode("utf-8")
                translations = translator(lines_of(io.StringIO(text, newline=None)))
            except UnicodeDecodeError as error:
                return self.send_error(400, f"needs text in UTF-8; got {error}")
            except TooLong as error:
                return self.send_error(413, str(error))
            body = "".join(f"{line}\n" for line in translations).encode("utf-8")
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return ThreadingHTTPServer(("localhost", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("codes", type=Path)
    parser.add_argument("--port", type=int, help="serve over HTTP; without, standard input is translated")
    arguments = parser.parse_args()
    try:
        translator = Translator(arguments.model, arguments.codes)
    except (ValueError, RuntimeError) as error:  # CTranslate2's is the latter
        parser.error(str(error))
    if arguments.port is not None:
        server(translator, arguments.port).serve_forever()
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    too_long: list[str] = []
    for line in translator(lines_of(sys.stdin), too_long.append):
        print(line)
    if too_long:
        sys.exit("\n".join(too_long))


if __name__ == "__main__":
    main()
