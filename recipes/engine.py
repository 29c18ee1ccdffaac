"""Translates a text with CTranslate2, with evaluate.sh's beam search, and prints the speed as fairseq-generate does.

python recipes/engine.py MODEL IN OUT
"""

import argparse
import os
import sys
import time
from pathlib import Path

import ctranslate2

# fairseq-generate's default limits of a translation's length, in tokens.
SHORTEST, LONGEST = 1, 200


def translate(translator: ctranslate2.Translator, sentences: list[list[str]], *, beam: int, lenpen: float) -> str:
    """Translates sentences in batches of 2,000 tokens, as evaluate.sh does; prints tokens/s, with ends of sentences.

    Args:
        translator: the engine with its model.
        sentences: subwords of the sentences.
        beam: beam size.
        lenpen: exponent of the length by which scores are divided.

    Returns:
        The translations, one per line, with joined subwords.
    """
    start = time.perf_counter()
    results = translator.translate_batch(
        sentences,
        beam_size=beam,
        length_penalty=lenpen,
        min_decoding_length=SHORTEST,
        max_decoding_length=LONGEST,
        max_batch_size=2000,
        batch_type="tokens",
    )
    seconds = time.perf_counter() - start
    hypotheses = [result.hypotheses[0] for result in results]
    tokens = sum(len(words) + 1 for words in hypotheses)
    print(
        f"Translated {len(results):,} sentences ({tokens:,} tokens) in {seconds:.1f}s ({tokens / seconds:.2f} tokens/s)"
    )
    return "".join(f"{' '.join(words)} ".replace("@@ ", "").rstrip() + "\n" for words in hypotheses)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL", help="of fairseq-tiedemb export --to ctranslate2")
    parser.add_argument("read", type=Path, metavar="IN", help="subwords of subword-nmt")
    parser.add_argument("write", type=Path, metavar="OUT")
    parser.add_argument("--beam", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--lenpen", type=float, default=1.0, help="default: %(default)s")
    arguments = parser.parse_args()
    # As many threads as torch uses.
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    try:
        translator = ctranslate2.Translator(str(arguments.model), intra_threads=threads)
    except RuntimeError as error:
        sys.exit(f"engine.py: MODEL: {error}")
    sentences = [line.split() for line in arguments.read.read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    text = translate(translator, sentences, beam=arguments.beam, lenpen=arguments.lenpen)
    arguments.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
