"""Loads the plugin with fairseq: at once where fairseq is imported already, else as soon as it is, else never."""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FAIRSEQ = "fairseq"
PLUGIN = f"{__package__}.plugin"
MENDS = f"{__package__}.compat"


def load_plugin_with_fairseq() -> None:
    """Loads the plugin now, or waits for fairseq, for which the process pays nothing."""
    # A folder that happens to be called fairseq can be imported too; it has no file.
    if getattr(sys.modules.get(FAIRSEQ), "__file__", None):
        importlib.import_module(PLUGIN)
    else:
        sys.meta_path.insert(0, FairseqFinder())


class FairseqFinder:
    """Finds fairseq where the finders after it find it, and nothing else; goes when fairseq has been imported.

    It is also asked by those who only want to know whether fairseq is installed (`importlib.util.find_spec`).
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != FAIRSEQ or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:  # which a folder without __init__.py has not
                    loader: Any = FairseqLoader(spec.loader, self)
                    spec.loader = loader
                return spec
        return None


class FairseqLoader:
    """Loads fairseq by the loader that was found for it, then the plugin."""

    def __init__(self, loader: Any, finder: FairseqFinder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Executes all of fairseq/__init__.py, which imports most of fairseq, and then the plugin."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # Mends that are being imported just now, which is what imported fairseq, load the plugin at their end.
        if MENDS not in sys.modules:
            importlib.import_module(PLUGIN)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
