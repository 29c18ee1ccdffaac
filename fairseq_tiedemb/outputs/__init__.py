"""From features to the probabilities of words: one contract, one way a file.

    features h (N, D)  -- projection P -->  -- factor Q -->  head: probabilities of words

``OutputLayer`` is what models hold, whatever the head is. A head answers

    scores(h)                   (*, V)  log-probabilities up to a constant a row
    loss(h, target, options)    their sum over words, or one number a word, with gradients, without N x V in memory
    log_prob(h, target)         (N,)  of given words only
    tables()                    the tables that words are scored by, by name

The heads: ``SharedEmbedding`` (the full softmax over one table) and ``Bands`` (adaptive softmax).
"""

from .bands import Bands as Bands
from .bands import embed_bands as embed_bands
from .bands import tie_bands as tie_bands
from .layer import Head as Head
from .layer import OutputLayer as OutputLayer
from .layer import build_output as build_output
