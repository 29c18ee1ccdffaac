"""How an entry of ``compat`` mends fairseq: it takes the place of a function of fairseq's, or is called once."""

from collections.abc import Callable
from typing import Any

from ..wrapping import wrap

ENTRIES: list[Callable[..., Any]] = []


def mend(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the entry takes the place of `owner.name`, which is its first argument; see ``wrap``."""

    def decorate(entry: Callable[..., Any]) -> Callable[..., Any]:
        wrap(owner, name)(entry)
        if entry not in ENTRIES:  # one entry may mend two functions
            ENTRIES.append(entry)
        return entry

    return decorate


def mend_now(entry: Callable[[], None]) -> Callable[[], None]:
    """A decorator: the entry mends something itself, and is called here."""
    entry()
    ENTRIES.append(entry)
    return entry
