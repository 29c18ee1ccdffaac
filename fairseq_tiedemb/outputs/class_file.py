"""Reads word classes from a file."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..checkpoints.text import read_lines

logger = logging.getLogger(__name__)
FLAG = "--class-file"


class NamedClasses(NamedTuple):
    """Word classes and their names."""

    class_of: Tensor  # class of each dictionary token (V,), numbered in the order of the file
    # Name of each class as in the file, such as a bit string; "" for the class of tokens missing in the file.
    names: list[str]


def of_another_file(what: str) -> ValueError:
    """The error for a resumed training with another file of classes, where ``what`` comes from the checkpoint."""
    needs = f"the file of the checkpoint's training, whose {what} goes on to be trained"
    use = "that file, or another --save-dir for a new training"
    return ValueError(f"{FLAG}: needs {needs}; got one with other classes. Use {use}.")


def read_classes(path: str, words: Mapping[str, int], specials: Sequence[int] = ()) -> NamedClasses:
    """Reads the word classes of a UTF-8 file, the one of ``--class-file``.

    A line is ``word class`` or, separated by tabs, ``bits word count`` as percyliang/brown-cluster writes it, where the
    bit string is the class. Dictionary tokens that the file lacks form one more class, the last.

    Args:
        path: the file.
        words: dictionary tokens and their indices.
        specials: indices of fairseq's special symbols, which the file may omit.

    Raises:
        ValueError: if the file is missing or no UTF-8, a line has neither form, a word two classes, or all are unknown.
    """
    names: dict[str, str] = {}
    for number, line in read_lines(path, flag=FLAG):
        if line.strip():
            word, name = _parse(line.rstrip("\n"), number, path)
            if names.setdefault(word, name) != name:
                needs = "one class for each word"
                got = f"{names[word]} and, in line {number} of {path!r}, {name} for {word!r}"
                raise ValueError(f"{FLAG}: needs {needs}; got {got}. Use the file without one of the lines.")
    known = {words[word]: name for word, name in names.items() if word in words and words[word] not in specials}
    if not known:
        needs = "classes for the words of the dictionary"
        got = f"{path!r} with {len(names):,} words, none of them in it"
        raise ValueError(f"{FLAG}: needs {needs}; got {got}. Use a file made from the training text.")
    numbers = {name: number for number, name in enumerate(dict.fromkeys(known.values()))}
    missing = len(words) - len(known.keys() | set(specials))
    found = f"{len(numbers):,} classes for {len(known):,} of {len(words):,} words in {path}"
    logger.info(f"{FLAG}: {found}; {missing:,} that it lacks are a class of their own")
    class_of = torch.full((max(words.values()) + 1,), len(numbers))  # of words of one name the last one is known
    class_of[list(known)] = torch.tensor([numbers[name] for name in known.values()])
    return NamedClasses(class_of, [*numbers, ""][: int(class_of.max()) + 1])


def _parse(line: str, number: int, path: str) -> tuple[str, str]:
    if line.count("\t") == 2:
        if brown := re.fullmatch("([01]+)\t([^\t]+)\t[0-9]+", line):
            return brown[2], brown[1]
    elif pair := re.fullmatch("[ \t]*([^ \t]+)[ \t]+([^ \t]+)[ \t]*", line):
        return pair[1], pair[2]
    needs = "lines of a word and its class, or, separated by tabs, of bits, a word and its count"
    got = f"{line[:60]!r} in line {number} of {path!r}"
    raise ValueError(f"{FLAG}: needs {needs}; got {got}. Use the file without that line.")
