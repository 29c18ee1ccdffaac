"""Tasks; importing a file registers its task with fairseq."""

from .. import training as training  # first: it mends fairseq
from . import contiguous_lm as contiguous_lm
from . import word_pairs as word_pairs
