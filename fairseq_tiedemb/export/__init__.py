"""Exports trained models to stock fairseq, CTranslate2 and transformers, which run them without this package.

`folding` turns a sharing method into plain matrices; the targets' modules write them. What a target does not support,
and what a checkpoint or a dictionary lacks, is refused by a ValueError that names it; docstrings do not say it again.
"""
