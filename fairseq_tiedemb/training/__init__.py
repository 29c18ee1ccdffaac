"""What our models, criterions and tasks ask of fairseq's trainer and commands. Importing this package provides it.

`extensions` declares the attributes by which they ask. The entries of the other files take the place of fairseq's:

    recipes      presets set the defaults of a training      help         the flags and defaults of a preset
    fit          model, task and criterion fit each other    updates      begin of an update, dummy batches, gathering
    best_words   the choice of a beam search                 cpu          the library that multiplies, threads that spin
    same_meaning weights keep the meaning of their training
"""

# ruff: noqa: F401 (an import mends)
# isort: off
from .. import compat as compat  # first: it mends fairseq
from . import best_words, fit, help, recipes, same_meaning, updates
from . import cpu  # last, around the others: a trainer is built, and has loaded, with all that they do
