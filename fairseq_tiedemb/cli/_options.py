"""Checks that commands share: numbers within a range, and options that need another option."""

import argparse
import math
from collections.abc import Callable, Iterable
from typing import Any


def at_least(least: float, *, most: float = math.inf, use: object = 10) -> Callable[[str], Any]:
    """Returns the type of an option: finite numbers from `least` to `most`, whole ones if `least` is whole.

    ``CommandParser`` refuses any other value, by the option's name and what is said here. `use` is a value to suggest.
    """
    kind = type(least)
    needed = f"{least:g} or more" if most == math.inf else f"{least:g} to {most:,}"

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or value == math.inf:
            raise argparse.ArgumentTypeError(f"needs {needed}; got {text}. Use {use}, say.")
        return value

    return parse


def add_number(
    parser: Any, flag: str, about: str, default: float | None = None, *, kind: Any = None, metavar: str = "N"
) -> None:
    """Adds an option with a number, of the type `kind` or whole from 1, whose help is `about` and the default."""
    shown = "" if default is None else f" (default: {default:g})"
    parser.add_argument(flag, type=kind or at_least(1), default=default, metavar=metavar, help=f"{about}{shown}")


def refuse_options(arguments: argparse.Namespace, names: Iterable[str], *, needs: str, got: object = None) -> None:
    """Raises ValueError for the first of the options that is given, and so lacks what it needs.

    The options default to None or False. `got` is what there is instead of what they need; default: the option's value.
    """
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value is not False:  # 0 is given
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag}: needs {needs}; got {value if got is None else got}. Leave it out.")
