"""Replaces functions of fairseq, once per entry."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Set `owner.name` to `make(original)`, unless the same `make` has done so before.

    Two entries may replace the same function; the later one wraps the earlier one.

    Args:
        owner: the module or class in which fairseq looks the name up.
        name: the attribute; a static method stays static.
        make: maps the original, which stays reachable as `__wrapped__`, to its replacement.
    """
    original = getattr(owner, name)
    entries = getattr(original, "_from_compat", ())
    if make.__qualname__ in entries:
        return
    # updated=(): the original may be a class, whose __dict__ must not be copied to a function.
    replacement: Any = functools.update_wrapper(make(original), original, updated=())
    replacement._from_compat = (*entries, make.__qualname__)
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if is_static else replacement)
