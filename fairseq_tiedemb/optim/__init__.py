"""Optimisers and a schedule that fairseq lacks; importing a file registers its own with fairseq."""

from .. import training as training  # first: it mends fairseq
from . import fused_adam as fused_adam
from . import non_monotone as non_monotone
from . import row_sgd as row_sgd
from . import sgdw as sgdw
