"""Tables and results as data, and the texts that are made of them and of nothing else."""
