"""Stand-ins for the classes, other than tensors, that a checkpoint may hold. They take plain values and nothing else.

A pickle says which classes and functions to call, and with what. The real ones believe it: `numpy.dtype` takes flags
and fields, and with them an array of objects at addresses of the file's choice. What stands here under their names
checks its arguments, and refuses what no checkpoint of fairseq's contains.
"""

import argparse
import contextlib
import importlib
import math
from typing import Any, NoReturn

import numpy as np

DIMENSIONS = 32  # of an array: numpy 1 has no more
NUMBERS = frozenset("b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8".split())  # numpy's codes: kind and bytes
DICTIONARY = "fairseq.data.dictionary.Dictionary"
SPECIAL_WORDS = {"bos_word": "<s>", "pad_word": "<pad>", "eos_word": "</s>", "unk_word": "<unk>"}
SPECIAL_NUMBERS = ("bos_index", "pad_index", "eos_index", "unk_index", "nspecial")


class NotInCheckpoints(Exception):
    """What a pickle asks for, a class with certain arguments, which no checkpoint of fairseq's contains."""


def require(holds: bool, name: str, got: Any) -> None:
    """Raises NotInCheckpoints for the arguments `got` of the class `name` unless a condition `holds`."""
    if not holds:
        raise NotInCheckpoints(f"{name} with {shown(got)}")


def shown(value: Any) -> str:
    """A short text of a value, for errors; `repr` of a nested value from a forged file could take forever."""
    if type(value) is tuple and len(value) <= DIMENSIONS:
        return f"({', '.join(shown(item) if type(item) is not tuple else 'a tuple' for item in value)})"
    if type(value) in (str, bytes, int, float, bool, type(None)):
        return repr(value[:60] if isinstance(value, str | bytes) else value)[:80]
    return f"a {type(value).__name__}"


class NumberType:
    """Stands for `numpy.dtype`: a plain bool, whole number or float, and the order of its bytes."""

    __slots__ = ("code", "order")
    code: str
    order: str

    def __new__(cls, *args: Any) -> "NumberType":
        """From what numpy saves: the code, and two flags (align, copy) that mean nothing for a number."""
        require(1 <= len(args) <= 3 and type(args[0]) is str and args[0] in NUMBERS, "numpy.dtype", args)
        require(all(type(flag) in (bool, int) for flag in args[1:]), "numpy.dtype", args)
        number = super().__new__(cls)
        number.code, number.order = args[0], "="
        return number

    def __setstate__(self, state: Any) -> None:
        """From what numpy saves of a plain type: version, order of bytes, and no fields, shape, size or flags."""
        plain = (type(None), type(None), type(None), int, int, int)
        is_tuple = type(state) is tuple and len(state) == 8
        require(is_tuple and tuple(map(type, state[2:])) == plain and state[5:] == (-1, -1, 0), "numpy.dtype", state)
        require(type(state[1]) is str and state[1] in ("<", ">", "=", "|"), "numpy.dtype", state)
        self.order = state[1]

    def plain(self) -> np.dtype:
        """The type as a `numpy.dtype`."""
        return np.dtype(self.code if self.order == "|" else self.order + self.code)

    def values(self, shape: tuple[int, ...], data: bytes, order: Any = "C") -> np.ndarray:
        """A new array, in this machine's order of bytes, of the numbers in `data`, as many as the shape says."""
        require(math.prod(shape) * int(self.code[1]) == len(data), "numpy array", (shape, f"{len(data)} bytes"))
        stored = np.dtype(np.uint8) if self.code == "b1" else self.plain()  # of a bool numpy takes 0 and 1 for granted
        numbers = np.frombuffer(data, stored) if data else np.empty(0, stored)
        return numbers.astype(np.dtype(self.code)).reshape(shape, order=order)


class Array(np.ndarray):
    """Stands for `numpy.ndarray`, and is one: `array` makes it, and what was saved of its numbers fills it, once."""

    def __new__(cls, *args: Any) -> "Array":
        raise NotInCheckpoints(f"numpy.ndarray with {shown(args)}")

    def __setstate__(self, state: Any) -> None:
        """From what numpy saves: version, shape, type, whether columns come first, and the bytes."""
        name = "numpy.ndarray"
        require(type(state) is tuple and len(state) == 5 and "filled" not in self.__dict__, name, state)
        version, shape, number, fortran, data = state
        require(type(number) is NumberType and type(data) is bytes and type(fortran) in (bool, int), name, state)
        require(type(version) is int and type(shape) is tuple and len(shape) <= DIMENSIONS, name, state)
        require(all(type(size) is int and size >= 0 for size in shape), name, state)
        values = number.values(shape, data, "F" if fortran else "C")
        stored: Any = (1, shape, values.dtype, bool(fortran), values.tobytes("F" if fortran else "C"))
        super().__setstate__(stored)
        self.filled = True

    def plain(self) -> np.ndarray:
        """A copy of the array as a `numpy.ndarray`."""
        return np.array(self, subok=False)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved again it is an array of numpy's, which every reader knows."""
        return self.plain().__reduce_ex__(protocol)


def array(*args: Any) -> Array:
    """Stands for numpy's `_reconstruct`: an array that is still empty."""
    is_empty = len(args) == 3 and args[0] is Array and args[1:] in (((0,), b"b"), ((0,), "b"))
    require(is_empty, "numpy._reconstruct", args)
    return np.ndarray.__new__(Array, (0,), np.int8)


def number(*args: Any) -> Any:
    """Stands for numpy's `scalar`: one number from its type and its bytes."""
    require(len(args) == 2 and type(args[0]) is NumberType and type(args[1]) is bytes, "numpy.scalar", args)
    return args[0].values((), args[1])[()]


class Words:
    """Stands for `fairseq.data.dictionary.Dictionary`, and becomes one, filled with words and counts, by `plain`.

    Where fairseq is not installed, it stays what it is: to be looked at, but not to be saved.
    """

    def __new__(cls, *args: Any) -> "Words":
        require(not args, DICTIONARY, args)
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        """From what fairseq saves; the numbers of the words are counted anew."""
        require(type(state) is dict and {"symbols", "count"} <= state.keys(), DICTIONARY, state)
        words, counts = found = state["symbols"], state["count"]
        require(type(words) is list and type(counts) is list and len(words) == len(counts), DICTIONARY, found)
        require({*map(type, words)} <= {str} and {*map(type, counts)} <= {int}, DICTIONARY, found)
        special = {key: state.get(key, word) for key, word in SPECIAL_WORDS.items()}
        numbers = {key: state[key] for key in SPECIAL_NUMBERS if key in state}
        require({*map(type, special.values())} <= {str}, DICTIONARY, special)
        require(all(type(each) is int and 0 <= each <= len(words) for each in numbers.values()), DICTIONARY, numbers)
        indices = {word: index for index, word in enumerate(words)}
        self.__dict__.update(special, **numbers, symbols=list(words), count=list(counts), indices=indices)

    def plain(self) -> Any:
        """The dictionary as fairseq's class, if fairseq is installed; NotInCheckpoints if it has no words."""
        require(bool(vars(self)), DICTIONARY, "no words")
        # Seconds, and the plugin with it: only a checkpoint with words in it is worth them.
        with contextlib.suppress(ModuleNotFoundError):
            self.__class__ = importlib.import_module("fairseq.data").Dictionary
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """None: what is saved must say fairseq's name, which pickle looks up."""
        needs = "to be installed where a checkpoint with a dictionary in it is saved"
        raise ValueError(f"fairseq: needs {needs}; got none. Use pip install fairseq-tiedemb with its requirements.")


FILLED = (NumberType, Array, Words)
# What torch may call beside its own, with the name in the pickle.
STAND_INS: list[Any] = [
    (lambda: b"", "builtins.bytes"),  # which pickle calls for an empty array
    (NumberType, "numpy.dtype"),
    (Array, "numpy.ndarray"),
    (argparse.Namespace, "argparse.Namespace"),
    (Words, DICTIONARY),
    # numpy 1 and 2 name the module differently.
    *((array, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    *((number, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
]
