"""Optimisers that fairseq lacks; importing a file registers its optimiser with fairseq."""

from . import sgdw as sgdw
