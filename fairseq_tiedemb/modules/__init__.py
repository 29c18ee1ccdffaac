"""Building blocks of the models. They import torch and the core alone, and take plain arguments, no configuration."""
