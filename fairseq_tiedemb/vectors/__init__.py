"""Word vectors from any source, and measurements on them.

``sources`` reads a ``WordTable`` from a checkpoint (``roles``), a safetensors file (``tensor_file``) or text
(``text_file``); ``counts`` computes vectors from a corpus. ``similarity``, ``analogies``, ``correlation``
and ``plane`` take a ``WordTable``. A file, table or word that is missing or unfit is refused by a
ValueError that names it; docstrings do not say it again.
"""
