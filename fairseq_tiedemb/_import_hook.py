"""Loads the plugin together with fairseq: now if fairseq is already imported, otherwise right after its import."""

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
    """Loads the plugin now, or installs an import hook that loads it after fairseq."""
    # Python also imports a bare folder named fairseq, as a namespace package; such a package has no file.
    if getattr(sys.modules.get(FAIRSEQ), "__file__", None):
        importlib.import_module(PLUGIN)
    else:
        sys.meta_path.insert(0, FairseqFinder())


class FairseqFinder:
    """Import finder for fairseq alone, also reached by ``importlib.util.find_spec``; fairseq's import removes it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != FAIRSEQ or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:  # a folder without __init__.py has no loader
                    loader: Any = FairseqLoader(spec.loader, self)
                    spec.loader = loader
                return spec
        return None


class FairseqLoader:
    """Loads fairseq through its original loader, then loads the plugin."""

    def __init__(self, loader: Any, finder: FairseqFinder):
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Executes fairseq's ``__init__``, which imports most of fairseq, then imports the plugin."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        # If `compat` is what imported fairseq, `compat` itself loads the plugin when its own import ends.
        if MENDS not in sys.modules:
            importlib.import_module(PLUGIN)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
