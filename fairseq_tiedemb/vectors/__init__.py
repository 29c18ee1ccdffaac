"""Tables of word vectors, wherever they are from, and what is measured on them.

``sources`` reads one from a checkpoint (``roles``), a safetensors file (``tensor_file``) or text (``text_file``) as a
``WordTable``; ``similarity``, ``analogies``, ``correlation``, ``neighbours`` and ``plane`` take it from there.
``counts`` makes one of a text.
"""
