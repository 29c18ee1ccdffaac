"""Results as data: what a table is, one file a result, and the report that is made of them and of nothing else."""
