"""Wraps functions of fairseq, each entry of ``compat`` and ``training`` once."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `owner.name(...)` becomes `function(original, ...)`.

    ``owner`` is the module or class in which fairseq looks the name up; a static method stays static. Two entries may
    wrap the same function; the later one wraps the earlier one. `function` itself stays what it is, and may wrap more.
    """
    original = getattr(owner, name)
    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        # The __dict__ of a class must not be copied to a function.
        @functools.wraps(original, updated=() if inspect.isclass(original) else functools.WRAPPER_UPDATES)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        wrapper.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]  # fairseq looks at it
        setattr(owner, name, staticmethod(wrapper) if is_static else wrapper)
        return function

    return decorate
