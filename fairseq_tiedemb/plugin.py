"""Importing this module mends fairseq in this process and registers the package's models, tasks and criterions.

`--user-dir fairseq_tiedemb` leads here, and so does `import fairseq_tiedemb` in a process that has imported fairseq.
"""

from . import compat as compat  # first: it mends fairseq
from . import criterions as criterions
from . import models as models
from . import optim as optim
from . import tasks as tasks
from . import training as training
