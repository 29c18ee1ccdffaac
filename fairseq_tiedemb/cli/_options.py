"""What commands share: checks of numbers, options that need another option, and the folder of a user's own code."""

import argparse
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

from fairseq_tiedemb.option_checks import flag_of

LARGEST = 10**15  # whole number, which torch and numpy take


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
        if not least <= value <= most or value == math.inf or (kind is int and value > LARGEST):
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
            raise ValueError(f"{flag_of(name)}: needs {needs}; got {value if got is None else got}. Leave it out.")


def add_user_dir(parser: argparse.ArgumentParser) -> None:
    """Adds fairseq's flag. A checkpoint names the folder too, but must not choose which code runs."""
    about = "folder of your own code (sharing methods, models) that the training used"
    parser.add_argument("--user-dir", metavar="FOLDER", help=about)


def import_user_dir(folder: str | None) -> None:
    """Imports the user's code, if any, after our plugin, as fairseq's commands do."""
    if folder is None:
        return
    if os.path.isfile(folder):  # fairseq would search for a package of that name
        raise ValueError(f"--user-dir: needs a folder of Python code; got {folder}, a file. Use its folder.")
    from fairseq import utils  # takes seconds

    import fairseq_tiedemb.plugin  # noqa: F401 (registers our models)

    try:
        utils.import_user_module(argparse.Namespace(user_dir=folder))
    except FileNotFoundError:
        raise ValueError(f"--user-dir: needs a folder of Python code; got {folder}. Use another path.") from None
    except ModuleNotFoundError:
        raise
    except ImportError as error:  # fairseq's message names the flag
        raise ValueError(str(error)) from error
