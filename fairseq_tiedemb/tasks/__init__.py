"""Tasks; importing a file registers its task with fairseq."""

from .. import plugin as plugin  # first: it mends fairseq and imports the other folders
from . import contiguous_lm as contiguous_lm
from . import word_pairs as word_pairs
