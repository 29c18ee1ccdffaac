"""Replacing a function of fairseq's, once an entry."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def replace(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Set `owner.name` to `make(original)`, once: a second call finds its mark and does nothing.

    Two entries may mend the same function; the later one stands around the earlier one.

    Args:
        owner: the module or class that fairseq looks the name up on.
        name: its attribute; a static method stays one.
        make: from the original to what takes its place. The original stays reachable as `__wrapped__`.
    """
    original = getattr(owner, name)
    entries = getattr(original, "_from_compat", ())
    if make.__qualname__ in entries:
        return
    # updated=(): the original may be a class, whose __dict__ is not to be copied onto a function.
    replacement: Any = functools.update_wrapper(make(original), original, updated=())
    replacement._from_compat = (*entries, make.__qualname__)
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if is_static else replacement)
