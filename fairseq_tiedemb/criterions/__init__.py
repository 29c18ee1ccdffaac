"""Training losses; importing a file registers its criterion with fairseq."""

from .. import plugin as plugin  # first: it mends fairseq and imports the other folders
from . import cross_entropy as cross_entropy
from . import word_pairs as word_pairs
