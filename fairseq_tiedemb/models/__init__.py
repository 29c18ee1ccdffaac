"""Model families, one per file; importing a file registers its models and presets with fairseq.

.. include:: README.md
"""

from .. import criterions as criterions  # first: what recipes name, and mends of fairseq
from .. import optim as optim
from .. import tasks as tasks
from . import attention_nmt as attention_nmt
from . import feedforward_lm as feedforward_lm
from . import highway_lm as highway_lm
from . import lightconv as lightconv
from . import tied_lstm_lm as tied_lstm_lm
from . import transformer as transformer
from . import transformer_lm as transformer_lm
from . import word2vec as word2vec
