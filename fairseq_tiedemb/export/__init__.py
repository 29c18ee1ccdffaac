"""Trained models for programs that know nothing of this package: stock fairseq and CTranslate2.

`folding` turns what a sharing method computes into plain matrices; `to_fairseq` and `to_ctranslate2` write them.
"""
