"""Training losses; importing a file registers its criterion with fairseq."""

from . import cross_entropy as cross_entropy
