"""Importing this module mends fairseq in this process and registers the package's models, tasks and criterions.

`--user-dir fairseq_tiedemb` leads here, and so does `import fairseq_tiedemb` in a process that has imported fairseq.
"""

import os

# Torch reads it at the first tensor. Without it: tensors above 32 MB are given back when freed, and their memory is
# asked for again in pages of 4 kB, which takes up to a fifth of an update of a large model.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from . import compat as compat  # first: it mends fairseq
from . import criterions as criterions
from . import models as models
from . import optim as optim
from . import tasks as tasks
from . import training as training
