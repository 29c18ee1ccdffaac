"""Shared (tied) embeddings for fairseq: ``fairseq-train --user-dir fairseq_tiedemb``.

The core needs torch and numpy only. It never imports fairseq, and its import changes no global state:

    from fairseq_tiedemb import SharedEmbedding, output_loss

``pip install torch numpy`` and ``pip install --no-deps .`` install enough for it and for the commands ``norms``,
``average``, ``ngram`` (numpy alone) and those on word vectors. Names are imported on first use;
`__init__.pyi` lists them. ``import fairseq_tiedemb.plugin`` mends fairseq and registers this package with it. In a
process that has imported fairseq, as by ``--user-dir``, importing this package does that.

Letters that name tensor dimensions, as suffixes (``hidden_BTH``) and in shapes:

    B  batch rows                  S  source length        D  width of embeddings and of features
    T  target length, time steps   V  vocabulary           H  hidden units
    N  tokens to predict           n  sentences            G  gates * H
    A  width of attention's hidden layer                   C  width of source annotations
    K  states * H: a recurrent state, [h] or [h, c]        I  width of a layer's inputs
    L  recurrent layers
"""

import ast
import functools
import importlib
import sys
from pathlib import Path
from typing import Any

__version__ = "0.1.52"


@functools.cache
def _homes() -> dict[str, str | None]:
    """The names of `__init__.pyi` with the modules that define them; None for a module of this package."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module for node in imports for alias in node.names}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return sorted(name for name, home in _homes().items() if home)
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _homes()[name]
    module = importlib.import_module(f"{__name__}.{home or name}")
    return getattr(module, name) if home else module


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})


if "fairseq" in sys.modules:
    importlib.import_module(f"{__name__}.plugin")
