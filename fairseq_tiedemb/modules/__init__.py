"""Building blocks of the models, one noun a file. They import torch only and never see a configuration."""
