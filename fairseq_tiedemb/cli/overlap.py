"""Count the subwords that two languages share.

Input is text cut into subwords: two files, or a folder of fairseq-preprocess, of which <unk> is not counted. Source:
Press & Wolf 2016, table 1.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._stream import read_stream


def add_arguments(parser: argparse.ArgumentParser) -> None:
    about = "source and target text in subwords (BPE, SentencePiece); or one folder of fairseq-preprocess"
    parser.add_argument("texts", nargs="+", type=Path, metavar="TEXT", help=about)


def run(arguments: argparse.Namespace) -> None:
    """Prints the numbers of types: source only, target only, and both."""
    from fairseq_tiedemb.analysis.overlap import describe, languages_of, types_of_data, types_of_text
    from fairseq_tiedemb.loading import load_dictionary

    texts = arguments.texts
    if len(texts) == 1 and texts[0].is_dir():
        names = languages_of(texts[0])
        types = []
        for language in names:
            dictionary = load_dictionary(texts[0] / f"dict.{language}.txt", flag="TEXT")
            stream = read_stream(texts[0], f"train.{'-'.join(names)}.{language}", dictionary, flag="TEXT")
            types.append(types_of_data(stream, dictionary))
    elif len(texts) == 2:
        names = str(texts[0]), str(texts[1])
        types = [types_of_text(text) for text in texts]
    else:
        needs = "two files, or one folder"
        raise ValueError(f"TEXT: needs {needs}; got {len(texts)}, {', '.join(map(str, texts))}. Use two.")
    source, target = types
    print("\n".join(describe(source, target, names)))
