"""Draw words as a map: their vectors, laid out in a plane.

A table is a panel, and its vectors have length 1. By principal components (pca), which keep distances as well as a
plane can; or by t-SNE (tsne), which keeps neighbours together, and needs `pip install scikit-learn`. Labels that
would cover others are left out; the words that come first keep theirs.
"""

import argparse
from pathlib import Path

from fairseq_tiedemb.cli._options import add_number
from fairseq_tiedemb.cli._output import check_picture, written_aside
from fairseq_tiedemb.cli._tables import add_tables, files_of_tables, read_tables

METHODS = ("pca", "tsne")
FEWEST = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_tables(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="PICTURE", help=".png, .svg, .pdf or the like")
    parser.add_argument("--method", choices=METHODS, default="pca", help="method of the projection (default: pca)")
    which = parser.add_mutually_exclusive_group()
    add_number(which, "--most-frequent", "draw the first N words", 300)
    which.add_argument("--words", nargs="+", action="extend", metavar="WORD", help="draw these, 4 or more")


def run(arguments: argparse.Namespace) -> None:
    """Draws the picture, and describes it."""
    from fairseq_tiedemb.vectors.map import draw, neighbour_embedding, principal_components
    from fairseq_tiedemb.vectors.word_table import common_words, unit_rows

    picture_format = check_picture(arguments.output, inputs=files_of_tables(arguments))
    tables = read_tables(arguments)
    chosen = list(dict.fromkeys(arguments.words or ()))
    words = chosen or common_words(tables)[: arguments.most_frequent]
    rows = [[table.row(word) for word in words] for table in tables]
    if len(words) < FEWEST:
        flag = "--words" if chosen else "--most-frequent" if arguments.most_frequent < FEWEST else "TABLE"
        raise ValueError(f"{flag}: needs {FEWEST} words or more that every TABLE has; got {len(words)}. Use more.")
    panels = []
    for table, own in zip(tables, rows, strict=True):
        vectors = unit_rows(table.rows_VD[own])
        if arguments.method == "pca":
            places, kept = principal_components(vectors)
            about = f"{table.name}, principal components, {kept:.0%} of the variance"
        else:
            places, about = neighbour_embedding(vectors), f"{table.name}, t-SNE"
        panels.append((about, words, places))
    with written_aside(arguments.output) as aside:
        labels = draw(panels, aside, picture_format=picture_format, true_distances=arguments.method == "pca")
    for panel, count in zip(panels, labels, strict=True):
        print(f"{panel[0]}: {len(words):,} words, {count:,} with labels")
