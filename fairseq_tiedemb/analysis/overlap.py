"""Measures how many subwords the source and target texts of a training corpus share.

Source: Press & Wolf 2016, table 1: with 85K of 2K + 7K + 85K subwords, 90% are shared between English and French.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fairseq_tiedemb.analysis.columns import aligned
from fairseq_tiedemb.checkpoints.text import read_lines


def describe(source: set[str], target: set[str], names: Sequence[str]) -> list[str]:
    """Formats counts and shares of the types (different words) that only one text has, or both have, as lines of text.

    `names` are those of the two texts. ValueError if one has no types.
    """
    for name, types in (("source", source), ("target", target)):
        if not types:
            raise ValueError(f"TEXT: needs at least one word per side; got none on the {name} side. Use another.")
    first, second = names
    both, total = len(source & target), len(source | target)
    counts = {f"only in {first}": len(source - target), f"only in {second}": len(target - source), "in both": both}
    rows = [[name, f"{count:,}", f"{count / total:.1%}"] for name, count in [*counts.items(), ("all", total)]]
    return [
        *aligned([["types", "", "of all"], *rows]),
        f"{both / len(source):.1%} of the types of {first} are shared, {both / len(target):.1%} of {second}'s",
    ]


def types_of_text(path: Path) -> set[str]:
    """Returns the types of an encoded text file, its tokens between white space, with the errors of ``read_lines``."""
    return {word for _, line in read_lines(path, flag="TEXT") for word in line.split()}


def languages_of(data: Path) -> tuple[str, str]:
    """Returns source and target language of a folder of fairseq-preprocess; ValueError unless it has just one pair."""
    pairs = sorted({path.name.split(".")[1] for path in data.glob("train.*-*.*.bin")})
    if len(pairs) != 1:
        needs = "the training text of one pair of languages, train.SOURCE-TARGET.*.bin"
        got = f"{', '.join(pairs) or 'none'} in {data}"
        raise ValueError(f"TEXT: needs {needs}; got {got}. Use the two encoded texts themselves.")
    (pair,) = pairs
    # The name of a language may have a hyphen of its own, zh-CN.
    splits = [(pair[:place], pair[place + 1 :]) for place, character in enumerate(pair) if character == "-"]
    return max(splits, key=lambda names: sum((data / f"train.{pair}.{name}.bin").is_file() for name in names))


def types_of_data(stream: Any, dictionary: Any) -> set[str]:
    """Returns the types of one side of the binarized training text, a ``TokenStream``, without fairseq's own symbols.

    The dictionary would not do: with ``--joined-dictionary`` it has the words of both sides.
    """
    return {dictionary[row] for row in np.flatnonzero(stream.word_counts()).tolist()}
