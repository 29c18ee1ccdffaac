"""Translates sentences by an exported model: standard input to standard output, or over HTTP. fairseq is not needed.

python examples/served/translate.py MODEL CODES < text.en > text.de
python examples/served/translate.py MODEL CODES --port 8000 &
curl --data "one thousand and one" localhost:8000
"""

import argparse
import sys
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import ctranslate2
from subword_nmt.apply_bpe import BPE

LONGEST = 1_000_000  # bytes of a request


class Translator:
    """A model of CTranslate2, with the subwords of its training around it.

    Args:
        model: folder that ``fairseq-tiedemb export --to ctranslate2`` wrote.
        codes: subwords, as ``subword-nmt learn-bpe`` wrote them.
    """

    def __init__(self, model: Path, codes: Path):
        self.engine = ctranslate2.Translator(str(model))
        with codes.open(encoding="utf-8") as file:
            self.subwords = BPE(file)

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """The best translation of each sentence, by a beam of 5; of an empty one an empty one."""
        texts = [self.subwords.segment(sentence).split() for sentence in sentences]
        results = self.engine.translate_batch(texts, beam_size=5, max_batch_size=32)
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
            given = self.headers.get("Content-Length", "0")
            if not (given.isascii() and given.isdigit()):
                return self.send_error(400, f"needs a number for Content-Length; got {given}")
            length = int(given)
            if length > LONGEST:
                return self.send_error(413, f"needs at most {LONGEST:,} bytes; got {length:,}")
            try:
                sentences = self.rfile.read(length).decode("utf-8").splitlines()
            except UnicodeDecodeError as error:
                return self.send_error(400, f"needs text in UTF-8; got {error}")
            body = "".join(f"{line}\n" for line in translator(sentences)).encode("utf-8")
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
    translator = Translator(arguments.model, arguments.codes)
    if arguments.port is not None:
        server(translator, arguments.port).serve_forever()
    for line in translator(line.rstrip("\n") for line in sys.stdin):
        print(line)


if __name__ == "__main__":
    main()
