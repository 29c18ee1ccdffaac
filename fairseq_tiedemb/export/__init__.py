"""Exports trained models to stock fairseq, CTranslate2 and transformers, which run them without this package.

`folding` turns a sharing method into plain matrices; the targets' modules write them.
"""
