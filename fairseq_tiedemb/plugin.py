"""Importing this module patches fairseq in this process and registers the package's models, tasks and criterions.

Three ways lead here: `--user-dir fairseq_tiedemb`; `import fairseq_tiedemb` in a process that imports fairseq, before
or after; and importing a folder below. The folders below cannot be imported without fairseq.
"""

from . import compat, user_dir

user_dir.apply()
compat.apply()

from . import criterions as criterions  # noqa: E402
from . import models as models  # noqa: E402
from . import optim as optim  # noqa: E402
from . import tasks as tasks  # noqa: E402
