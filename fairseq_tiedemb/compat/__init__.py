"""Fixes that make fairseq's commands run on today's Python, torch and numpy. Importing this package applies them.

fairseq is archived. These functions repair what newer libraries broke in it, and its own errors that lose data
silently; what our models ask of fairseq's trainer is in `fairseq_tiedemb/training/`. An entry is a function with the
decorator of `mending`; its docstring says what breaks without it, where in fairseq, and when it can be removed. An
entry whose cause is absent changes nothing. The files:

    arrays       numpy                     batches     sizes, leftover sentences
    checkpoints  safe reading              trainer     precision, averages, losses
    literals     settings, never code      processes   distributed training, also on CPUs
    saving       whole files or none       noise       warnings
    text         UTF-8                     archives    unpacking of models
    resume       batches to come           user_dir    one copy of this package
    refusals     without a traceback       flags       that cannot be followed

.. include:: README.md
"""

# ruff: noqa: F401 (an import mends)
# isort: off
from . import noise  # before fairseq's own import and its warnings
from . import user_dir  # before any other mend, since it may refuse this copy
from . import archives, arrays, batches, checkpoints, flags, literals
from . import processes, refusals, resume, saving, text, trainer
from .mending import ENTRIES as ENTRIES

noise.quiet_warnings()  # once more, for what the imports have brought
