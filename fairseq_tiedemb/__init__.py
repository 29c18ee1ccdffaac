"""Shared (tied) embeddings for fairseq: ``fairseq-train --user-dir fairseq_tiedemb``.

The core needs torch and numpy only. It never imports fairseq and changes no global state:

    from fairseq_tiedemb import SharedEmbedding, output_loss

``pip install torch numpy`` and ``pip install --no-deps .`` install enough for it and for the commands ``norms``,
``average``, ``ngram`` (numpy alone) and those on word vectors. Names are imported on first use. When a process also
imports fairseq, ``plugin`` patches fairseq and registers this package with it.

Letters that name tensor dimensions, as suffixes (``hidden_BTH``) and in shapes:

    B  batch rows                  S  source length        D  width of embeddings and of features
    T  target length, time steps   V  vocabulary           H  hidden units
    N  tokens to predict           n  sentences            G  gates * H
    A  width of attention's hidden layer                   C  width of source annotations
    K  states * H: a recurrent state, [h] or [h, c]        I  width of a layer's inputs
    L  recurrent layers
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import _import_hook

if TYPE_CHECKING:
    from . import (  # noqa: F401
        analysis,
        compat,
        criterions,
        embedding,
        losses,
        models,
        modules,
        ngram,
        optim,
        outputs,
        plugin,
        products,
        reading,
        regularizers,
        sharing,
        table_names,
        tasks,
        vectors,
    )
    from .embedding import SharedEmbedding as SharedEmbedding
    from .losses import LossOptions as LossOptions
    from .losses import OutputLoss as OutputLoss
    from .losses import output_loss as output_loss
    from .outputs import CountedHead as CountedHead
    from .outputs import OutputHead as OutputHead
    from .outputs import OutputLayer as OutputLayer
    from .outputs import register_output_layer as register_output_layer
    from .products import fast_products as fast_products
    from .sharing import SharingMethod as SharingMethod
    from .sharing import register_sharing_method as register_sharing_method

__version__ = "0.1.10"

# Public names, and the modules that define them.
_HOMES = {
    "CountedHead": "outputs",
    "LossOptions": "losses",
    "OutputHead": "outputs",
    "OutputLayer": "outputs",
    "OutputLoss": "losses",
    "SharedEmbedding": "embedding",
    "SharingMethod": "sharing",
    "fast_products": "products",
    "output_loss": "losses",
    "register_output_layer": "outputs",
    "register_sharing_method": "sharing",
}
# Modules that load on first use; the ones after `vectors` import fairseq.
_MODULES = (
    "analysis embedding losses modules ngram outputs products reading regularizers sharing table_names vectors "
    "compat criterions models optim plugin tasks"
).split()
__all__ = [
    "CountedHead",
    "LossOptions",
    "OutputHead",
    "OutputLayer",
    "OutputLoss",
    "SharedEmbedding",
    "SharingMethod",
    "fast_products",
    "output_loss",
    "register_output_layer",
    "register_sharing_method",
]

if not TYPE_CHECKING:  # a type checker would take __getattr__ to define every name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})


_import_hook.load_plugin_with_fairseq()
