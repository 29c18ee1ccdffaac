"""From features to the probabilities of words: one contract, one way a file.

    features h (N, D)  -- projection P -->  -- factor Q -->  head: probabilities of words

``OutputLayer`` is what models hold, whatever the head is. A head answers

    scores(h)                   (*, V)  log-probabilities up to a constant a row
    loss(h, target, options)    their sum over words, or one number a word, with gradients, without N x V in memory
    log_prob(h, target)         (N,)  of given words only
    start_bias(log_prob)        sets the biases to a distribution of words
    tables()                    the tables that words are scored by, by name
    by_target                   whether log_prob takes less than scores

The heads: ``SharedEmbedding`` (the full softmax over one table), ``Bands`` (adaptive softmax), and those that know the
counts of the training text (``CountedHead``): ``ClassBased``, ``ShortList``, ``NoiseContrastive``.
"""

from .bands import Bands as Bands
from .bands import embed_bands as embed_bands
from .bands import tie_bands as tie_bands
from .class_file import read_classes as read_classes
from .classes import ClassBased as ClassBased
from .counted import CountedHead as CountedHead
from .counted import unigram as unigram
from .layer import Head as Head
from .layer import OutputLayer as OutputLayer
from .layer import build_output as build_output
from .sampled import NoiseContrastive as NoiseContrastive
from .short_list import ShortList as ShortList
