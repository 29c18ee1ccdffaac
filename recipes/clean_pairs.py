"""Drops sentence pairs that are empty, too long, or of too different lengths, as Moses does.

    python recipes/clean_pairs.py IN OUT SOURCE TARGET --longest 175 --ratio 1.5

reads IN.SOURCE and IN.TARGET and writes OUT.SOURCE and OUT.TARGET; lengths are numbers of space-separated tokens.
Equivalent to `clean-corpus-n.perl -ratio 1.5 IN SOURCE TARGET OUT 1 175`.
"""

import argparse
import sys
from pathlib import Path


def keeps(source: str, target: str, *, longest: int, ratio: float) -> bool:
    """Whether a pair is kept."""
    lengths = sorted((len(source.split()), len(target.split())))
    return 1 <= lengths[0] and lengths[1] <= longest and lengths[1] <= ratio * lengths[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs=4, metavar=("IN", "OUT", "SOURCE", "TARGET"))
    parser.add_argument("--longest", type=int, required=True)
    parser.add_argument("--ratio", type=float, required=True)
    parser.add_argument("--lowercase", action="store_true")
    arguments = parser.parse_args()
    read, write, *languages = arguments.names
    texts = [  # by bytes: a carriage return within a line ends none
        Path(f"{read}.{language}").read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
        for language in languages
    ]
    if len(texts[0]) != len(texts[1]):
        sys.exit(
            f"clean_pairs.py: {read}: needs as many lines in both languages; got {len(texts[0])} and {len(texts[1])}."
        )
    kept = [pair for pair in zip(*texts, strict=True) if keeps(*pair, longest=arguments.longest, ratio=arguments.ratio)]
    for number, language in enumerate(languages):
        text = "".join(" ".join(pair[number].split()) + "\n" for pair in kept)
        Path(f"{write}.{language}").write_text(text.lower() if arguments.lowercase else text, encoding="utf-8")


if __name__ == "__main__":
    main()
