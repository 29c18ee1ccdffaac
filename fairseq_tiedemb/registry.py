"""Named entries of one kind, which packages and files of users may add to."""

import functools
import logging
import re
from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from typing import Any, TypeVar

Entry = TypeVar("Entry")
# What a command line takes as a value, and a file name as a part.
NAME = re.compile(r"\w[\w.+-]*")

logger = logging.getLogger("fairseq_tiedemb.registry")


class Registry(dict[str, Entry]):
    """Entries by name. An entry has a ``name`` and a ``summary``.

    Args:
        kind: class of the entries.
        noun: what an entry is called in messages.
        group: entry points of installed packages, each an entry or a module that registers one.
        yields: names of entries whose place another entry may take once.
    """

    def __init__(self, kind: type[Entry], noun: str, group: str, *, yields: Collection[str] = ()):
        super().__init__()
        self.kind, self.noun, self.group = kind, noun, group
        self.yields = set(yields)
        self.changed: Callable[[], None] = lambda: None  # called after an entry is added
        self.word = noun.rpartition(" ")[2]
        # Once a process: which packages are installed does not change meanwhile.
        self.load = functools.cache(self._load)

    def register(self, entry: Any) -> Entry:
        """Adds an entry.

        Raises:
            ValueError: if it is of another kind, or its name is taken or is none that a command line takes.
        """
        if not isinstance(entry, self.kind):
            kind = self.kind.__name__
            raise ValueError(f"{self.noun}: needs an instance of {kind}; got {entry!r}. Use {kind}(name=..., ...).")
        name = entry.name  # type: ignore[attr-defined]
        if not isinstance(name, str) or not NAME.fullmatch(name):
            needs = "a name of letters, digits and . + - _"
            raise ValueError(f"{self.noun}: needs {needs}; got {name!r}. Use 'my-own', say.")
        if name in self and name in self.yields:
            self.yields.remove(name)
        elif name in self:
            taken = self[name].summary  # type: ignore[attr-defined]
            raise ValueError(f"{self.noun}: needs an unused name; got {name!r}, which is {taken!r}. Use another name.")
        self[name] = entry
        try:
            self.changed()
        except ValueError:
            del self[name]
            raise
        return entry

    def find(self, name: str, *, flag: str) -> Entry:
        """The entry of this name; if there is none, the ValueError begins with `flag`, and lists the names."""
        if not isinstance(name, str):
            raise ValueError(f"{flag}: needs the name of a registered {self.word}; got {name!r}. Use one of: {self}.")
        if name not in self:
            self.load()
        if name not in self:
            raise ValueError(
                f"{flag}: needs a registered {self.word}; got {name!r}. Use one of: {self}; or import the code that "
                f"registers {name!r} first, with --user-dir or by an entry point {self.group!r}."
            )
        return self[name + ""]  # a new string: the compiler of torch 2.6 cannot guard an attribute as a key

    def names(self) -> list[str]:
        """All names, those of installed packages with them."""
        self.load()
        return list(self)

    def __str__(self) -> str:
        return ", ".join(self)

    def _load(self) -> None:
        """Imports the entry points; the log names one that fails, which stops nobody who does not use it."""
        for entry in entry_points(group=self.group):
            try:
                value = entry.load()
                if isinstance(value, self.kind) and self.get(value.name) is not value:  # type: ignore[attr-defined]
                    self.register(value)
            except Exception as error:
                package = entry.dist.name if entry.dist else "unknown"
                logger.warning(
                    f"{self.noun}s of the package {package!r}: need an entry point that can be loaded; got "
                    f"{type(error).__name__} ({error}) for {entry.name} = {entry.value}. Use another version of it."
                )
