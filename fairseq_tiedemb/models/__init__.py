"""Model families, one per file; importing a file registers its models and presets with fairseq.

.. include:: README.md
"""

# ruff: noqa: F401 (an import registers)

from .. import criterions, optim, tasks  # first: what recipes name, and mends of fairseq
from . import attention_nmt, feedforward_lm, highway_lm, lightconv, tied_lstm_lm, transformer, transformer_lm, word2vec
