"""Word vectors from any source, and measurements on them.

``sources`` reads a ``WordTable`` from a checkpoint (``roles``), a folder of transformers or a safetensors file
(``huggingface``), or text (``word_table``); ``counts`` computes vectors from a corpus. ``similarity`` and ``analogies``
take a ``WordTable``, ``correlation`` and ``map`` its rows. A file, table or word that is missing or unfit is
refused by a ValueError that names it; docstrings do not say it again.
"""
