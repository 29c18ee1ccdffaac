"""Training losses; importing a file registers its criterion with fairseq."""

from .. import training as training  # first: it mends fairseq
from . import cross_entropy as cross_entropy
from . import word_pairs as word_pairs
