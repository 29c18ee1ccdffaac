"""Model families, one a file; importing a file registers its models and presets with fairseq."""

from . import attention_nmt as attention_nmt
