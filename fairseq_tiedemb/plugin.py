"""What the package is to fairseq: importing this file mends fairseq in this process and registers all that is ours.

`--user-dir` does it, `import fairseq_tiedemb` does it where fairseq is imported too, before or after, and so does
importing any of the folders below. None of them can be imported without fairseq.
"""

from . import compat, user_dir

user_dir.apply()
compat.apply()

from . import criterions as criterions  # noqa: E402
from . import models as models  # noqa: E402
from . import optim as optim  # noqa: E402
from . import tasks as tasks  # noqa: E402
