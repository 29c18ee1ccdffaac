"""Building blocks of the models. They import torch only and take plain arguments, never a configuration."""
