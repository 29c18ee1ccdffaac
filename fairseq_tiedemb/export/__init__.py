"""Exports trained models to stock fairseq and to CTranslate2, which run them without this package.

`folding` turns a sharing method into plain matrices; `to_fairseq` and `to_ctranslate2` write them.
"""
