"""Optimisers that fairseq lacks; importing a file registers its optimiser with fairseq."""

from .. import training as training  # first: it mends fairseq
from . import fused_adam as fused_adam
from . import row_sgd as row_sgd
from . import sgdw as sgdw
