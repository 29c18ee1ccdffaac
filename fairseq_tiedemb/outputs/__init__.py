"""From features to the probabilities of words: one contract, one way a file.

    features h (N, D)  -- projection P -->  -- factor Q -->  head: probabilities of words

``OutputLayer`` is what models hold, whatever the head is. A head answers

    scores(h)                   (*, V)  log-probabilities up to a constant a row
    loss(h, target, options)    their sum over words, or one number a word, with gradients, without N x V in memory
    log_prob(h, target)         (N,)  of given words only
    start_bias(log_prob)        sets the biases to a distribution of words
    tables()                    the tables that words are scored by, by name
    by_target                   whether log_prob takes less than scores
    loss_is_its_own             whether criterions that train the scores of all words would train something else

The heads: ``SharedEmbedding`` (the full softmax over one table), ``Bands`` (adaptive softmax), and those that know the
counts of the training text: ``Tree`` (hierarchical softmax), which scores no words and has no table, and, over a table
(``CountedHead``), ``ClassBased``, ``ShortList``, ``NoiseContrastive`` and ``SampledSoftmax``. These have a ``flag``,
the option that chooses them. Heads whose scores may stand for log-probabilities have ``raw_scores(h, target)``, those
of given words only.
"""

from .bands import Bands as Bands
from .bands import embed_bands as embed_bands
from .bands import tie_bands as tie_bands
from .class_file import NamedClasses as NamedClasses
from .class_file import read_classes as read_classes
from .classes import ClassBased as ClassBased
from .counted import CountedHead as CountedHead
from .counted import unigram as unigram
from .layer import Head as Head
from .layer import OutputLayer as OutputLayer
from .layer import build_output as build_output
from .sampled import NoiseContrastive as NoiseContrastive
from .sampled import SampledSoftmax as SampledSoftmax
from .short_list import ShortList as ShortList
from .tree import BY_CLASSES as BY_CLASSES
from .tree import TREES as TREES
from .tree import Tree as Tree
