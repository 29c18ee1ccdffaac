"""Fixes that make fairseq's commands run on today's Python, torch and numpy. Importing this package applies them.

fairseq is archived. These functions repair what newer libraries broke in it, and its own errors that lose data
silently; what our models ask of fairseq's trainer is in `fairseq_tiedemb/training/`. An entry is a function with the
decorator of `mending`; its docstring says what breaks without it, where in fairseq, and when it can be removed. An
entry whose cause is absent changes nothing. The files:

    checkpoints  safe reading              batches     numpy, sizes, leftover sentences
    literals     settings, never code      trainer     precision, averages, losses
    saving       whole files or none       processes   distributed training, also on CPUs
    text         UTF-8                     noise       warnings
    resume       batches to come           archives    unpacking of models
    refusals     without a traceback       user_dir    one copy of this package
    flags        that are not followed

.. include:: README.md
"""

# ruff: noqa: F401 (an import mends)
# isort: off
from . import noise  # before fairseq's own import and its warnings
from . import user_dir  # before any other mend, since it may refuse this copy
from . import archives, batches, checkpoints, flags, literals
from . import processes, refusals, resume, saving, text, trainer
from .mending import ENTRIES as ENTRIES

noise.quiet_warnings()  # once more, for what the imports have brought
