"""Optimisers that fairseq lacks; importing a file registers its optimiser with fairseq."""

from .. import plugin as plugin  # first: it mends fairseq and imports the other folders
from . import fused_adam as fused_adam
from . import row_sgd as row_sgd
from . import sgdw as sgdw
