"""Tasks; importing a file registers its task with fairseq."""

from . import contiguous_lm as contiguous_lm
