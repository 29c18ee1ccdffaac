"""Shared (tied) embeddings for fairseq: ``fairseq-train --user-dir fairseq_tiedemb``.

Letters that name the dimensions of tensors, as suffixes (``hidden_BTH``) and in shapes:

    B  batch rows                  S  source length        D  width of embeddings and of features
    T  target length, time steps   V  vocabulary           H  hidden units
    N  words to predict            n  sentences            G  gates * H
    A  width of attention's hidden layer                   C  width of source annotations
    K  states * H: a recurrent state, [h] or [h, c]        I  width of a layer's inputs
    L  recurrent layers
"""

from . import compat, user_dir

user_dir.apply()
compat.apply()

from . import criterions as criterions  # noqa: E402
from . import models as models  # noqa: E402
from . import optim as optim  # noqa: E402
from . import tasks as tasks  # noqa: E402

__version__ = "0.1.0"
