"""Translates sentences by an exported model: standard input to standard output, or over HTTP. fairseq is not needed.

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
    """A line for which the model has no positions."""


def refuse(message: str) -> None:
    """What ``Translator`` reports, raised.

    Raises:
        TooLong: always.
    """
    raise TooLong(message)


def lines_of(file: Iterable[str]) -> list[str]:
    """Lines without their ends, which are what Python takes for one in a file: not every break of Unicode's."""
    return [line.rstrip("\n") for line in file]


class Translator:
    """A model of CTranslate2, with the subwords of its training around it.

    Args:
        model: folder that ``fairseq-tiedemb export --to ctranslate2`` wrote.
        codes: subwords, as ``subword-nmt learn-bpe`` wrote them.

    Raises:
        ValueError: if the folder does not say how long sentences may be, which the engine does not tell.
    """

    def __init__(self, model: Path, codes: Path):
        self.engine = ctranslate2.Translator(str(model))
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        if "max_source_positions" not in config:
            raise ValueError(f"MODEL: needs max_source_positions in config.json; got {model}. Use the export again.")
        # The end of the sentence takes one of them.
        self.longest, self.longest_translation = (config[f"max_{side}_positions"] - 1 for side in ("source", "target"))
        with codes.open(encoding="utf-8") as file:
            self.subwords = BPE(file)

    def __call__(self, sentences: Iterable[str], report: Callable[[str], None] = refuse) -> list[str]:
        """The best translation of each sentence, by a beam of 5; of an empty one an empty one.

        Args:
            sentences: of any length; the engine's own limits, of 1,024 subwords in and 256 out, cut without a word.
            report: is told of each sentence that is too long for the model, in place of which it has an empty one.
        """
        texts = [self.subwords.segment(sentence).split() for sentence in sentences]
        for number, text in enumerate(texts, start=1):
            if len(text) > self.longest:
                report(f"line {number}: needs at most {self.longest:,} subwords; got {len(text):,}. Use shorter ones.")
                text.clear()
        results = self.engine.translate_batch(
            texts, beam_size=5, max_batch_size=32, max_input_length=0, max_decoding_length=self.longest_translation
        )
        # A word that the search breaks off ends in "@@" too.
        return [f"{' '.join(result.hypotheses[0])} ".replace("@@ ", "").rstrip() for result in results]


def server(translator: Translator, port: int) -> ThreadingHTTPServer:
    """A server on this machine alone: POST lines of text, and get their translations.

    Args:
        translator: of all requests; the engine takes them side by side.
        port: where to listen; 0 for any that is free.
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
    except ValueError as error:
        parser.error(str(error))
    if arguments.port is not None:
        server(translator, arguments.port).serve_forever()
    too_long: list[str] = []
    for line in translator(lines_of(sys.stdin), too_long.append):
        print(line)
    if too_long:
        sys.exit("\n".join(too_long))


if __name__ == "__main__":
    main()
